package server

import (
	"cmp"
	"context"
	"net/http"

	"github.com/agentsched/agentsched/internal/scheduler"
)

// Standby is what a server has whose scheduler stands by while another one leads.
type Standby struct {
	// Pass answers requests as the leader does. It is given those of routes that are not
	// answered from the store or by each scheduler for itself, after they were
	// authorized, with a body that is bounded: its error is an *http.MaxBytesError. A
	// request that reads has ReadHeader set to ReadLeader.
	Pass http.Handler
	// Fresh reports whether the store has what the answers to requests say that Pass was
	// given. While it has not, reads are given to Pass as well. nil: it always has.
	Fresh func() bool
}

// ReadHeader is the header by which a client has the leader answer what it reads, with
// the value ReadLeader. StandbyHeader names in an answer the scheduler, one that stands
// by, which has answered from its copy of the queue.
const (
	ReadHeader    = "Agentsched-Read"
	ReadLeader    = "leader"
	StandbyHeader = "Agentsched-Standby"
)

// NewStandby returns a server of a scheduler that stands by. Store of its options is a
// copy of the leader's, which is only read; Sched is nil. What only the leader answers
// is given to by.Pass.
func NewStandby(opt Options, by Standby) *Server {
	opt.Sched = scheduler.Standby(opt.Store)
	return newServer(opt, &standby{Standby: by, instance: cmp.Or(opt.Self.Instance, "unknown")})
}

// standby says of each request who answers it.
type standby struct {
	Standby
	instance string
}

// route returns what answers the requests of a route; own does where this process can.
func (s *standby) route(r *router, at *route, own http.HandlerFunc) http.HandlerFunc {
	bound := cmp.Or(at.body, smallBody)
	pass := func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength > bound {
			r.refuse(w, req, badBody(&http.MaxBytesError{Limit: bound}, bound))
			return
		}
		if req.ContentLength != 0 {
			req.Body = http.MaxBytesReader(w, req.Body, bound)
		}
		if at.streams {
			ctx, cancel := context.WithCancel(req.Context())
			defer cancel()
			if serving, ok := ctx.Value(servingKey{}).(context.Context); ok {
				defer context.AfterFunc(serving, cancel)()
			}
			req = req.WithContext(ctx)
		}
		s.Pass.ServeHTTP(w, req)
	}
	switch at.answered {
	case byEach:
		return own
	case fromStore:
		return func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get(ReadHeader) == ReadLeader || s.Fresh != nil && !s.Fresh() {
				req.Header.Set(ReadHeader, ReadLeader)
				pass(w, req)
				return
			}
			w.Header().Set(StandbyHeader, s.instance)
			own(w, req)
		}
	}
	return pass
}
