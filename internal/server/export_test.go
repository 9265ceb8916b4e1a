package server

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Patterns returns those of all routes of the mux.
func (s *Server) Patterns() []string { return s.router.patterns }

// Timed is a handler under the time that a body has.
func Timed(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := newPaced(rw)
		w.giveTime(bodyTime)
		next(w, r)
	})
}

// BodyTypes returns the types of all bodies of an API that have a shape of their
// own: "submit-jobs request", "submit-jobs 201".
func (s *Server) BodyTypes() map[string]reflect.Type {
	s.Document() // which names the problems
	doc, types := s.router.doc, map[string]reflect.Type{}
	add := func(name string, content map[string]*huma.MediaType) {
		for _, m := range content {
			if m.Schema != nil && m.Schema.Ref != "" {
				types[name] = doc.Components.Schemas.TypeFromRef(m.Schema.Ref)
			}
		}
	}
	for _, p := range doc.Paths {
		for _, op := range []*huma.Operation{p.Get, p.Post, p.Put} {
			if op == nil {
				continue
			}
			if op.RequestBody != nil {
				add(op.OperationID+" request", op.RequestBody.Content)
			}
			for status, response := range op.Responses {
				add(op.OperationID+" "+status, response.Content)
			}
		}
	}
	return types
}
