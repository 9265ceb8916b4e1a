package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// StreamOptions say what to follow.
type StreamOptions struct {
	// Kinds are those of the updates; none: all but api.UpdateEvent and api.UpdateWaiting. A gap,
	// which says that some were missed, comes whatever is asked for.
	Kinds []api.UpdateKind
	Job   job.ID // only this one
	// Last is the ID of the last update that was heard: it goes on after that.
	Last string
	// OnBreak, if not nil, hears of each break of the connection and how long it is
	// until it is tried again.
	OnBreak func(err error, wait time.Duration)
}

// Stream follows what happens. Once it has been connected, a break of the
// connection, or a restart of the scheduler, is bridged: it connects again, later
// and later, and goes on where it was. Its last pair has the error that ended it:
// the context's, or one that trying again does not mend.
func (c *Client) Stream(ctx context.Context, o StreamOptions) iter.Seq2[api.Update, error] {
	return func(yield func(api.Update, error) bool) {
		kinds := make([]string, len(o.Kinds))
		for i, k := range o.Kinds {
			kinds[i] = string(k)
		}
		t := tail{c: c, path: "/v1/stream", query: url.Values(query{}.add("kinds", strings.Join(kinds, ",")).add("job", string(o.Job))), last: o.Last, onBreak: o.OnBreak}
		err := t.run(ctx, func(e event) (bool, error) {
			var u api.Update
			if err := json.Unmarshal(e.data, &u); err != nil {
				return false, fmt.Errorf("read an update: %w", err)
			}
			return yield(u, nil), nil
		})
		if err != nil {
			yield(api.Update{}, err)
		}
	}
}

// Followed is one thing that Follow tells: exactly one of its fields is set.
type Followed struct {
	Event *api.Event
	Job   *api.Job // its state has changed
}

// FollowOptions say from where to follow a job.
type FollowOptions struct {
	After int64 // the cursor of the last event that was heard; 0: all
	// OnBreak is that of StreamOptions.
	OnBreak func(err error, wait time.Duration)
}

// Follow follows the log of the job that ref names, from its first event on, and
// returns when the job has ended. It bridges breaks as Stream does. The last pair
// has the error that ended it early, if one did.
func (c *Client) Follow(ctx context.Context, ref string, o FollowOptions) iter.Seq2[Followed, error] {
	return func(yield func(Followed, error) bool) {
		j, err := c.Job(ctx, ref)
		if err != nil {
			yield(Followed{}, err)
			return
		}
		t := tail{c: c, path: jobPath(string(j.Job.ID), "/stream"), onBreak: o.OnBreak}
		if o.After > 0 {
			t.last = fmt.Sprint(o.After)
		}
		err = t.run(ctx, func(e event) (bool, error) {
			var f Followed
			var err error
			switch e.kind {
			case "event":
				err = json.Unmarshal(e.data, &f.Event)
			case "job":
				err = json.Unmarshal(e.data, &f.Job)
			case "end":
				return false, nil
			default:
				return true, nil // of a newer scheduler
			}
			if err != nil {
				return false, fmt.Errorf("read the log of job %s: %w", j.Job.ID, err)
			}
			return yield(f, nil), nil
		})
		if err != nil {
			yield(Followed{}, err)
		}
	}
}

// How a stream is kept up.
const (
	firstWait = 200 * time.Millisecond // after a break
	lastWait  = 10 * time.Second
	deadTime  = 45 * time.Second // without a sign of life, of which there is one every 15 s
	maxEvent  = 16 << 20         // bytes of one event
)

// errSilent: a stream has died without a word.
var errSilent = errors.New("the scheduler has been silent for too long")

// event is one Server-Sent Event.
type event struct {
	id, kind string
	data     []byte
}

// tail reads a stream, over breaks.
type tail struct {
	c       *Client
	path    string
	query   url.Values
	last    string // id
	onBreak func(error, time.Duration)
	heard   bool // since the last break
}

// run gives each event to take until that returns false or an error.
func (t *tail) run(ctx context.Context, take func(event) (bool, error)) error {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstWait), backoff.WithMaxInterval(lastWait), backoff.WithMaxElapsedTime(0))
	for connected := false; ; {
		t.heard = false
		over, err := t.connect(ctx, take)
		if over {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if connected = connected || t.heard; !connected || !mends(err) {
			return err
		}
		if t.heard {
			wait.Reset()
		}
		pause := wait.NextBackOff()
		if t.onBreak != nil {
			t.onBreak(err, pause)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// mends reports whether trying again may help.
func mends(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return !ok || p.Status == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError
}

// connect reads the stream until it breaks; over says that it shall end with err.
func (t *tail) connect(ctx context.Context, take func(event) (bool, error)) (over bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(deadTime, func() { cancel(errSilent) })
	defer silence.Stop()
	r := request{method: http.MethodGet, path: t.path, query: t.query, header: map[string]string{"Accept": "text/event-stream"}}
	if t.last != "" {
		r.header["Last-Event-ID"] = t.last
	}
	resp, err := t.c.send(ctx, r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	t.heard = true
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	var e event
	for lines.Scan() {
		silence.Reset(deadTime)
		line := lines.Bytes()
		if len(line) > 0 {
			e.add(line)
			continue
		}
		if e.data != nil {
			more, err := take(e)
			if err != nil || !more {
				return true, err
			}
		}
		if e.id != "" {
			t.last = e.id
		}
		e = event{}
	}
	if err := lines.Err(); err != nil {
		return errors.Is(err, bufio.ErrTooLong), fmt.Errorf("read what the scheduler tells: %w", err)
	}
	return false, errors.New("the scheduler has ended the stream")
}

// add reads one line of an event, as the standard has it
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func (e *event) add(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		e.id = string(value)
	case "event":
		e.kind = string(value)
	case "data":
		if e.data != nil {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
	}
}
