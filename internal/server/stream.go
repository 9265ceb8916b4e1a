package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
)

// streams answers with Server-Sent Events.
type streams struct {
	entries   entries
	sched     *scheduler.Scheduler
	log       zerolog.Logger
	principal func(context.Context) string // Options.Principal
	max       int                          // listeners
	listeners listeners
	encoder   encoder
}

func (s *streams) routes(r *router) {
	stream(r, route{id: "stream-updates", method: "GET", path: "/v1/stream", role: read, tag: "streams",
		about: "Stream updates, as Server-Sent Events.\nid is the id of the update, event its kind, data the update as JSON. With Last-Event-ID the stream continues after that update; an event gap says that some are missing."},
		eventType, s.updates)
	stream(r, route{id: "stream-job", method: "GET", path: "/v1/jobs/{job}/stream", role: read, tag: "streams",
		about: "Stream the log of a job, as Server-Sent Events.\nevent: event has a stored event, whose id is its cursor; job has the job whenever its state has changed; end comes last, once the job has ended. With Last-Event-ID the log continues after that cursor, also after a restart."},
		eventType, s.job)
}

// updateBuffer is by how many updates a listener may be behind before it misses some.
const updateBuffer = 4096

// maxTogether is how many updates are sent at once at most.
const maxTogether = 256

// updateKinds are the kinds that can be selected. A gap is always sent.
func updateKinds() []api.UpdateKind {
	return []api.UpdateKind{
		api.UpdateJob, api.UpdateCore, api.UpdateCircuit, api.UpdateEscalation, api.UpdateSignal, api.UpdateEvent, api.UpdateWaiting,
	}
}

type streamQuery struct {
	Kinds string `query:"kinds" doc:"a list with commas of job, core, circuit, escalation, signal, event, waiting; absent: all except event and waiting"`
	Job   job.ID `query:"job" doc:"only updates of the job with this id"`
	Last  string `header:"Last-Event-ID" maxLength:"100" doc:"the id of the last event received"`
}

// wanted returns what selects the updates that were asked for.
func (q *streamQuery) wanted() (func(*api.Update) bool, error) {
	kinds := slices.DeleteFunc(updateKinds(), func(k api.UpdateKind) bool { return k == api.UpdateEvent || k == api.UpdateWaiting })
	if q.Kinds != "" {
		bad := &invalid{}
		kinds = nil
		for text := range strings.SplitSeq(q.Kinds, ",") {
			kind := api.UpdateKind(strings.TrimSpace(text))
			checkOneOf(bad, "query.kinds", kind, updateKinds())
			kinds = append(kinds, kind)
		}
		if err := bad.or(); err != nil {
			return nil, err
		}
	}
	return func(u *api.Update) bool {
		return u.Kind == api.UpdateGap || slices.Contains(kinds, u.Kind) && (q.Job == "" || q.Job == u.Job)
	}, nil
}

// follow streams updates until one of the two ends.
func (s *streams) updates(w http.ResponseWriter, r *http.Request, q *streamQuery) error {
	wanted, err := q.wanted()
	if err != nil {
		return err
	}
	out, done, err := s.open(w, r)
	if err != nil {
		return err
	}
	defer done()
	at, past, updates, cancel := s.sched.Feed.SubscribeFrom(q.Last, updateBuffer)
	defer cancel()
	if q.Last == "" {
		out.position(at)
	}
	put := func(u *api.Update) error {
		if !wanted(u) {
			return nil
		}
		text, err := s.encoder.update(u)
		if err != nil {
			return err
		}
		out.put(u.ID, string(u.Kind), text)
		return nil
	}
	for i := range past {
		if put(&past[i]) != nil {
			return nil
		}
	}
	alive := time.NewTicker(aliveTime)
	defer alive.Stop()
	for {
		if out.flush() != nil {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-ending(r.Context()):
			return nil
		case <-alive.C:
			out.alive()
		case u := <-updates:
			if put(&u) != nil {
				return nil
			}
			for range min(len(updates), maxTogether) {
				if u = <-updates; put(&u) != nil {
					return nil
				}
			}
		}
	}
}
