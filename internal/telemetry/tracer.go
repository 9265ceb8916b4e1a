package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

const (
	// maxLive is of how many jobs that have not ended permits and commands are
	// remembered; where there are more, some lose theirs.
	maxLive = 10_000
	// maxNotes is how many permits of a job, and commands of an attempt, are.
	maxNotes = 128
	// maxWaiting is how many jobs that have ended may wait to become a trace.
	maxWaiting = 1024
	// maxBatch is how many spans are sent at once, and sendEvery how long they wait.
	maxBatch  = 512
	sendEvery = 5 * time.Second
	// readTimeout is how long the attempts of a job may take to be read.
	readTimeout = 10 * time.Second
)

// tracer makes a trace of each job that ends: from what is stored, so that it does
// not matter which process saw which part, and for permits and commands from what
// this process saw.
type tracer struct {
	log      zerolog.Logger
	store    queue.Reader
	redact   func(string) string
	exporter exporter
	dropped  *counter // jobs
	failed   *counter // spans

	ended  chan endedJob
	done   chan struct{}      // closed when the last spans are sent
	ctx    context.Context    // of reads and of what is sent; ends when shutdown stops waiting
	cancel context.CancelFunc // ends ctx

	mu     sync.Mutex // guards what follows
	live   map[job.ID]*notes
	closed bool

	stop    sync.Once
	stopErr error
}

// notes are what is remembered of a job until it has ended.
type notes struct {
	permits  []permit
	commands map[int][]command // by attempt
}

type permit struct {
	attempt    int
	choice     job.Choice
	reason     job.Reason
	begin, end time.Time
}

type command struct {
	at   time.Time
	name string // its first word, redacted
	exit int
}

// endedJob is what a trace is made of, beside what is stored.
type endedJob struct {
	entry queue.Entry // without large and private fields
	notes
}

func newTracer(cfg Config) *tracer {
	endpoint := cfg.OTLP.Endpoint
	if u, err := url.Parse(endpoint); err == nil && (u.Path == "" || u.Path == "/") {
		endpoint = u.JoinPath("v1", "traces").String()
	}
	t := &tracer{
		log: cfg.Log, store: cfg.Store, redact: cfg.Redact,
		dropped: newCounter("trace_jobs_dropped_total", "Ended jobs of which no trace was made, for lack of time."),
		failed:  newCounter("trace_export_failed_spans_total", "Spans that the collector did not take."),
		ended:   make(chan endedJob, maxWaiting), done: make(chan struct{}), live: map[job.ID]*notes{},
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.exporter = exporter{
		endpoint: endpoint, version: cfg.Version, headers: cfg.OTLP.Headers,
		client: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		log:    cfg.Log, redact: cfg.Redact, now: cfg.Now, failed: t.failed,
	}
	go t.run()
	return t
}

func (t *tracer) observe(m scheduler.Moment) {
	switch m.Kind {
	case scheduler.MomentPermit:
		t.note(m.Entry.ID, func(n *notes) {
			if len(n.permits) < maxNotes {
				n.permits = append(n.permits, permit{m.Attempt, m.Choice, m.Reason, m.At.Add(-m.Took), m.At})
			}
		})
	case scheduler.MomentEvents:
		for i := range m.Events {
			if ev := &m.Events[i]; ev.Kind == job.EventCommand && ev.ExitCode != nil {
				t.command(m.Entry.ID, ev)
			}
		}
	case scheduler.MomentEnded:
		t.end(m.Entry)
	}
}

// command remembers the latest commands of an attempt.
func (t *tracer) command(id job.ID, ev *job.Event) {
	c := command{ev.Time, t.redact(firstWord(ev.Command)), *ev.ExitCode}
	t.note(id, func(n *notes) {
		if n.commands == nil {
			n.commands = map[int][]command{}
		}
		list := append(n.commands[ev.Attempt], c)
		n.commands[ev.Attempt] = list[max(0, len(list)-maxNotes):]
	})
}

func (t *tracer) note(id job.ID, write func(*notes)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.live[id]
	if n == nil {
		if len(t.live) >= maxLive {
			for old := range t.live { // any
				delete(t.live, old)
				break
			}
		}
		n = &notes{}
		t.live[id] = n
	}
	write(n)
}

// end hands a job over to become a trace, if there is room.
func (t *tracer) end(e *queue.Entry) {
	ended := endedJob{entry: kept(e)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.live[e.ID]; n != nil {
		ended.notes = *n
		delete(t.live, e.ID)
	}
	if t.closed {
		return
	}
	select {
	case t.ended <- ended:
	default:
		t.dropped.add(1)
	}
}

// kept returns what a trace says of an entry, for itself.
func kept(e *queue.Entry) queue.Entry {
	k := queue.Entry{
		ID: e.ID, Batch: e.Batch, State: e.State, ExitKind: e.ExitKind, CreatedAt: e.CreatedAt, RunnableAt: e.RunnableAt,
		Attempts: e.Attempts, ErrorClass: e.ErrorClass, Spent: e.Spent, CoalescedWith: e.CoalescedWith,
	}
	if e.CompletedAt != nil {
		at := *e.CompletedAt
		k.CompletedAt = &at
	}
	choice := currentChoice(e)
	k.Spec = job.Spec{
		Name: e.Spec.Name, Tenant: e.Spec.Tenant, Type: e.Spec.Type, Agent: e.Spec.Agent, Class: e.Spec.Class, Trace: e.Spec.Trace, Context: e.Spec.Context,
		Worker: choice.Worker, Model: choice.Model,
	}
	return k
}

// run makes spans of what has ended, and sends them.
func (t *tracer) run() {
	defer close(t.done)
	defer t.exporter.client.CloseIdleConnections()
	due := time.NewTicker(sendEvery)
	defer due.Stop()
	var batch [][]byte
	for open := true; open; {
		select {
		case e, more := <-t.ended:
			switch open = more; {
			case !open:
			case t.ctx.Err() != nil:
				t.dropped.add(1)
				continue
			default:
				batch = append(batch, t.trace(&e, t.attempts(e.entry.ID))...)
				if len(batch) < maxBatch {
					continue
				}
			}
		case <-due.C:
		}
		t.exporter.send(t.ctx, batch)
		batch = nil
	}
}

// attempts returns what is stored of a job's attempts; a trace without them still
// tells when it came and ended.
func (t *tracer) attempts(id job.ID) []job.Attempt {
	if t.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, readTimeout)
	defer cancel()
	list, err := t.store.Attempts(ctx, id)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		t.log.Debug().Err(err).Str("job", string(id)).Msg("a trace is made without its attempts")
	}
	return list
}

func (t *tracer) shutdown(ctx context.Context) error {
	t.stop.Do(func() {
		t.mu.Lock()
		t.closed = true
		close(t.ended)
		t.mu.Unlock()
		select {
		case <-t.done:
		case <-ctx.Done():
			t.stopErr = fmt.Errorf("send the last traces: %w", context.Cause(ctx))
			t.cancel()
			<-t.done
		}
		t.cancel()
	})
	return t.stopErr
}

// text returns an attribute, without secrets.
func (t *tracer) text(key, value string) attr {
	return attr{key, t.redact(value)}
}
