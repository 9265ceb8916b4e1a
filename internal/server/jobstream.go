package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/queue"
)

// When the store is asked for a job's log: lookFirst after an update of the job, twice as
// long after the next one and so on up to lookSoon, as long as updates come; lookSoon after
// such a look, since an update may come before its events are stored; and now and then.
const (
	lookFirst = 20 * time.Millisecond
	lookSoon  = 200 * time.Millisecond
	lookSlow  = 2 * time.Second
	lookPage  = 500 // events at once
)

type jobStreamQuery struct {
	jobPath
	After int64  `query:"after" minimum:"0" doc:"only events after this cursor"`
	Last  string `header:"Last-Event-ID" maxLength:"100" doc:"the id of the last event received, a cursor; it replaces after"`
}

// job streams a job's log until the job, or one of the two, has ended.
func (s *streams) job(w http.ResponseWriter, r *http.Request, q *jobStreamQuery) error {
	e, err := s.entries.find(r.Context(), q.Job)
	if err != nil {
		return err
	}
	if q.Last != "" {
		if q.After, err = strconv.ParseInt(q.Last, 10, 64); err != nil || q.After < 0 {
			return badField("header.Last-Event-ID", "is %q, want the id of an event of this stream", q.Last)
		}
	}
	out, done, err := s.open(w, r)
	if err != nil {
		return err
	}
	defer done()
	updates, cancel := s.sched.Feed.Subscribe(updateBuffer)
	defer cancel()
	log := jobLog{store: s.entries.store, stand: s.entries.one, out: out, entry: e, cursor: q.After}
	alive, look := time.NewTicker(aliveTime), time.NewTimer(lookSlow)
	defer alive.Stop()
	defer look.Stop()
	pace := lookPace{after: lookFirst}
	for {
		ended, err := log.look(r.Context())
		if err != nil {
			s.log.Debug().Err(err).Str("job", string(e.ID)).Msg("stream of a job ends")
			return nil
		}
		if ended || !pace.await(r, log.entry, updates, alive, look, out) {
			return nil
		}
	}
}

// lookPace is when the store is asked next.
type lookPace struct {
	after time.Duration // an update
	again bool          // the last look was for an update
}

// await returns when the store is to be asked again; false: the stream is over.
func (p *lookPace) await(r *http.Request, e queue.Entry, updates <-chan api.Update, alive *time.Ticker, look *time.Timer, out *events) bool {
	if p.again {
		look.Reset(lookSoon)
	} else {
		look.Reset(lookSlow)
	}
	for soon := false; ; {
		select {
		case <-r.Context().Done():
			return false
		case <-ending(r.Context()):
			return false
		case <-look.C:
			if p.again = soon; soon {
				p.after = min(2*p.after, lookSoon)
			} else {
				p.after = lookFirst
			}
			return true
		case <-alive.C:
			out.alive()
			if out.flush() != nil {
				return false
			}
		case u := <-updates:
			if !soon && (u.Job == e.ID || u.Kind == api.UpdateGap) {
				soon = true
				look.Reset(p.after)
			}
		}
	}
}

// jobLog is what of a job's log was sent.
type jobLog struct {
	store  queue.Reader
	stand  func(context.Context, queue.Entry) api.Job
	out    *events
	entry  queue.Entry
	sent   string // the stateMark of the entry as it was sent last
	cursor int64
}

// look sends what is new. The entry is read before its events: once it has ended
// all of them are there.
func (l *jobLog) look(ctx context.Context) (ended bool, err error) {
	e, err := l.store.Get(ctx, l.entry.ID)
	gone := errors.Is(err, queue.ErrNotFound)
	if gone {
		e = l.entry // forgotten: it has ended long ago
	} else if err != nil {
		return false, err
	}
	l.entry = e
	j := l.stand(ctx, e)
	if err := l.events(ctx); err != nil {
		return false, err
	}
	if mark := stateMark(&j); mark != l.sent {
		text, err := json.Marshal(&j)
		if err != nil {
			return false, err
		}
		l.sent = mark
		l.out.put("", "job", text)
	}
	if gone || e.State.Terminal() {
		l.out.put("", "end", []byte(`{"state":`+strconv.Quote(stateWord(&e))+`}`))
		ended = true
	}
	return ended, l.out.flush()
}

func (l *jobLog) events(ctx context.Context) error {
	for {
		page, err := l.store.Events(ctx, l.entry.ID, l.cursor, lookPage)
		if err != nil {
			return err
		}
		for i := range page {
			text, err := json.Marshal(&page[i])
			if err != nil {
				return err
			}
			l.cursor = page[i].Cursor
			l.out.put(strconv.FormatInt(l.cursor, 10), "event", text)
		}
		if err := l.out.flush(); err != nil || len(page) < lookPage {
			return err
		}
	}
}

// stateMark changes when the state of a job does, as a person sees it; not with
// its lease, nor with what it has spent.
func stateMark(e *api.Job) string {
	reason := ""
	if w := e.Status.Waiting; w != nil {
		reason = string(w.Reason)
	}
	return string(e.State) + "\x00" + string(e.Status.State) + "\x00" + reason + "\x00" + e.Waiting + "\x00" + strconv.Itoa(e.Attempts) + "\x00" +
		strconv.FormatBool(e.CancelRequested) + "\x00" + string(e.RequeuedAs) + "\x00" + string(e.ContinuedAs)
}
