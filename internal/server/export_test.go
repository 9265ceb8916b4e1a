package server

import "net/http"

// Patterns returns those of all routes of the mux.
func (s *Server) Patterns() []string { return s.patterns }

// Timed is a handler under the time that a body has.
func Timed(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := newPaced(rw)
		w.giveTime(bodyTime)
		next(w, r)
	})
}
