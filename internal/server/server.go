package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/socket"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// Server answers requests about one scheduler.
type Server struct {
	store queue.Store
	sched *scheduler.Scheduler
	queue *sched.Kernel
	// triggers is nil where none are fired.
	triggers func() []trigger.Status
	// evaluator is nil where nobody judges.
	evaluator *eval.Evaluator
	log       zerolog.Logger
}

// New returns a server of the scheduler and its store.
func New(store queue.Store, s *scheduler.Scheduler, log zerolog.Logger) *Server {
	return &Server{store: store, sched: s, queue: sched.New(store, sched.Options{Changed: s.Changed}), log: log}
}

// Handler returns the routes. {job} is an id, the beginning of one, or a name.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs", s.answer(s.jobs))
	mux.HandleFunc("GET /v1/jobs/{job}", s.answer(s.job))
	mux.HandleFunc("GET /v1/jobs/{job}/events", s.answer(s.events))
	mux.HandleFunc("POST /v1/jobs/{job}/cancel", s.answer(s.cancel))
	mux.HandleFunc("POST /v1/jobs", s.answer(s.submit))
	mux.HandleFunc("GET /v1/dead-letters", s.answer(s.deadLetters))
	mux.HandleFunc("POST /v1/dead-letters/requeue", s.answer(s.requeue))
	mux.HandleFunc("POST /v1/dead-letters/drop", s.answer(s.drop))
	mux.HandleFunc("GET /v1/updates", s.updates)
	mux.HandleFunc("GET /v1/status", s.answer(s.status))
	mux.HandleFunc("GET /v1/usage", s.answer(s.usage))
	mux.HandleFunc("GET /v1/grants", s.answer(s.grants))
	mux.HandleFunc("PUT /v1/grants", s.answer(s.setGrant))
	mux.HandleFunc("POST /v1/resume", s.answer(s.resume))
	mux.HandleFunc("POST /v1/cores/restart", s.answer(s.restart))
	mux.HandleFunc("POST /v1/rpc", s.rpc)
	mux.HandleFunc("GET /v1/triggers", s.answer(s.listTriggers))
	s.evaluationRoutes(mux)
	s.pipelineRoutes(mux)
	mux.HandleFunc("GET /v1/approvals", s.answer(s.approvals))
	mux.HandleFunc("POST /v1/jobs/{job}/answer", s.answer(s.decide))
	mux.HandleFunc("POST /v1/jobs/{job}/checkpoint", s.answer(s.checkpoint))
	return mux
}

// Serve answers requests on the socket at path until ctx ends.
func (s *Server) Serve(ctx context.Context, path string) error {
	l, err := socket.Listen(path)
	if err != nil {
		return err
	}
	// Requests that follow updates end with ctx; nothing is waited for.
	srv := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 64 << 10}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", path, err)
	}
	return context.Cause(ctx)
}

func (s *Server) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			s.problem(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.log.Debug().Err(err).Str("path", r.URL.Path).Msg("answer not sent")
		}
	}
}

// errBadRequest is wrapped by errors about the request itself.
var errBadRequest = errors.New("bad request")

func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errBadRequest):
		status = http.StatusBadRequest
	case errors.Is(err, queue.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, queue.ErrIllegalTransition), errors.Is(err, scheduler.ErrNotIsolated), errors.Is(err, queue.ErrDuplicate), errors.Is(err, queue.ErrDeadOwner), errors.Is(err, queue.ErrExists), errors.Is(err, scheduler.ErrProfile):
		status = http.StatusConflict
	case errors.Is(err, scheduler.ErrEnding):
		status = http.StatusServiceUnavailable
	default:
		s.log.Error().Err(err).Str("path", r.URL.Path).Msg("request failed")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(client.Problem{Title: http.StatusText(status), Status: status, Detail: err.Error()})
}

// number reads a query parameter that is a number of at least zero.
func number(r *http.Request, name string, byDefault int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %s is %q, want a number of 0 or more", errBadRequest, name, text)
	}
	return n, nil
}

func (s *Server) jobs(r *http.Request) (any, error) {
	limit, err1 := number(r, "limit", 100)
	offset, err2 := number(r, "offset", 0)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	q := r.URL.Query()
	f := queue.Filter{
		Batch: job.BatchID(q.Get("batch")), Tenant: job.Tenant(q.Get("tenant")), Newest: q.Get("newest") == "true",
		Limit: int(min(max(limit, 1), 1000)), Offset: int(offset),
	}
	for _, state := range q["state"] {
		f.States = append(f.States, job.EntryState(state))
	}
	entries, total, err := s.store.List(r.Context(), f)
	return client.Jobs{Jobs: entries, Total: total}, err
}

func (s *Server) job(r *http.Request) (any, error) {
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	attempts, err := s.store.Attempts(r.Context(), e.ID)
	return client.Job{Job: e, Attempts: attempts}, err
}

func (s *Server) events(r *http.Request) (any, error) {
	after, err1 := number(r, "after", 0)
	limit, err2 := number(r, "limit", 1000)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	events, err := s.store.Events(r.Context(), e.ID, after, int(min(max(limit, 1), 1000)))
	return client.Events{Events: events}, err
}

func (s *Server) cancel(r *http.Request) (any, error) {
	e, err := queue.Find(r.Context(), s.store, r.PathValue("job"))
	if err != nil {
		return nil, err
	}
	if e.State.Terminal() {
		state := string(scheduler.StateOf(&e))
		if e.State == job.Expired {
			state = string(job.Expired)
		}
		return nil, fmt.Errorf("job %s is %s already: %w", e.Spec.Name, state, queue.ErrIllegalTransition)
	}
	if err := s.sched.Cancel(r.Context(), e.ID); err != nil {
		return nil, err
	}
	e, err = s.store.Get(r.Context(), e.ID)
	return client.Job{Job: e}, err
}

// updates streams updates as JSON Lines until the client or the scheduler ends.
func (s *Server) updates(w http.ResponseWriter, r *http.Request) {
	updates, cancel := s.sched.Subscribe(1024)
	defer cancel()
	w.Header().Set("Content-Type", "application/jsonl")
	flush := http.NewResponseController(w)
	flush.Flush()
	enc := json.NewEncoder(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case u := <-updates:
			if enc.Encode(u) != nil || flush.Flush() != nil {
				return
			}
		}
	}
}
