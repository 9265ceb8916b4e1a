// Command portable is this queue's adapter for a benchmark that others wrote,
// hardbyte/postgresql-job-queue-benchmarking: one process that offers jobs at a rate and works
// them, in scenario long_horizon of its contract (CONTRIBUTING_ADAPTERS.md there). run.py beside
// it runs that benchmark's scenarios.
//
// The store is the one of a scheduler that leads, and each job has the writes that a scheduler
// makes: its submission, a claim, the record of its attempt, its outcome. The job's work is a
// pause within this process, as in the other adapters, and not a run.
//
// Settings are variables: DATABASE_URL, PRODUCER_MODE, PRODUCER_RATE, PRODUCER_RATE_CONTROL_FILE,
// PRODUCER_BATCH_MAX, PRODUCER_BATCH_MS, TARGET_DEPTH, WORKER_COUNT, JOB_PAYLOAD_BYTES,
// JOB_WORK_MS, SAMPLE_EVERY_S, BENCH_INSTANCE_ID. Standard output has a JSON object a line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/postgres"
)

const (
	system = "agentsched"
	// holder is who claims: the only process that works on the queue, so that what an earlier
	// one has claimed is nobody's when this one begins.
	holder = "portable"
	lease  = 10 * time.Minute
	// depthEvery is how often the length of the queue is looked at.
	depthEvery = time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "portable:", err)
		os.Exit(1)
	}
}

// settings are those of the contract.
type settings struct {
	mode, control               string
	rate, batch, depth, workers int
	payload                     int
	work, period, sample        time.Duration
}

func read() (s settings, err error) {
	number := func(name string, or, least int) int {
		text := os.Getenv(name)
		if text == "" {
			return or
		}
		n, e := strconv.Atoi(text)
		if e != nil || n < least {
			err = errors.Join(err, fmt.Errorf("%s is %q; it must be a whole number, at least %d", name, text, least))
		}
		return n
	}
	s.mode, s.control = os.Getenv("PRODUCER_MODE"), os.Getenv("PRODUCER_RATE_CONTROL_FILE")
	s.rate, s.batch, s.depth = number("PRODUCER_RATE", 800, 0), number("PRODUCER_BATCH_MAX", 128, 1), number("TARGET_DEPTH", 1000, 1)
	s.workers, s.payload = number("WORKER_COUNT", 32, 1), number("JOB_PAYLOAD_BYTES", 256, 0)
	s.work = time.Duration(number("JOB_WORK_MS", 1, 0)) * time.Millisecond
	s.period = time.Duration(number("PRODUCER_BATCH_MS", 10, 1)) * time.Millisecond
	s.sample = time.Duration(number("SAMPLE_EVERY_S", 5, 1)) * time.Second
	switch scenario := os.Getenv("SCENARIO"); {
	case scenario != "" && scenario != "long_horizon":
		err = errors.Join(err, fmt.Errorf("SCENARIO is %q; this adapter has long_horizon", scenario))
	case s.mode == "":
		s.mode = "fixed"
	case s.mode != "fixed" && s.mode != "depth-target":
		err = errors.Join(err, fmt.Errorf("PRODUCER_MODE is %q; it must be fixed or depth-target", s.mode))
	}
	if n := number("BENCH_INSTANCE_ID", 0, 0); n > 0 {
		err = errors.Join(err, fmt.Errorf("BENCH_INSTANCE_ID is %d; one process leads the queue: run it with one replica", n))
	}
	return s, err
}

func run(ctx context.Context) (err error) {
	s, err := read()
	if err != nil {
		return err
	}
	where, err := postgres.ParseWhere("env:DATABASE_URL", os.Getenv) // it has a password
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "portable-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	store, err := postgres.Open(ctx, postgres.Config{Where: where, Folder: dir, Log: log, Self: postgres.Member{Instance: "portable"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Apply(ctx, queue.Reclaim{Now: now(), Holders: []string{holder}, Message: "an earlier process ended while this attempt ran"}); err != nil {
		return err
	}
	l := &load{settings: s, store: store, out: json.NewEncoder(os.Stdout), origin: queue.Batch{ID: job.NewBatchID(), Source: "portable", CreatedAt: now()}}
	l.say(map[string]any{
		"kind": "descriptor", "event_tables": []string{"agentsched.entries", "agentsched.attempts", "agentsched.changes"}, "extensions": []string{},
		"version": "devel", "schema_version": "current", "db_name": "agentsched_bench", "started_at": stamp(now()),
	})
	go io.Copy(io.Discard, os.Stdin) //nolint:errcheck // tokens of the other pacing; it ends with the process
	return l.run(ctx)
}

// load offers jobs and works them.
type load struct {
	settings
	store  queue.Store
	origin queue.Batch

	target                      atomic.Int64 // jobs a second
	enqueued, completed, length atomic.Int64
	latencies                   ring

	mu  sync.Mutex
	out *json.Encoder
}

// run runs all parts until ctx ends or one of them fails.
func (l *load) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	var once sync.Once
	var first error
	for _, part := range []func(context.Context) error{l.produce, l.consume, l.observe, l.tell} {
		parts.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				once.Do(func() { first = err })
				cancel(err)
			}
		})
	}
	parts.Wait()
	return first
}

func now() time.Time { return time.Now().UTC() }

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

// pause waits, and returns false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// produce offers jobs: at a rate that is credited by the time that has passed, or so many that
// the queue is as long as it should be.
func (l *load) produce(ctx context.Context) error {
	var credit float64
	var count int64
	last := time.Now()
	for pause(ctx, l.period-time.Since(last)) {
		at := time.Now()
		rate := l.wanted()
		credit += float64(rate) * at.Sub(last).Seconds()
		last = at
		n := min(int(credit), l.batch)
		if l.mode == "depth-target" {
			l.target.Store(0)
			n = min(l.depth-int(l.length.Load()), l.batch)
		} else {
			l.target.Store(int64(rate))
			if rate <= 0 {
				credit = 0
			}
			credit -= float64(max(n, 0))
		}
		if n < 1 {
			continue
		}
		entries := make([]queue.Entry, n)
		for i := range entries {
			count++
			entries[i] = l.entry(count)
		}
		if err := l.store.Enqueue(ctx, l.origin, entries); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		l.enqueued.Add(int64(n))
	}
	return nil
}

// wanted is the rate that is wanted now, which the control file may change.
func (l *load) wanted() int {
	if l.control == "" {
		return l.rate
	}
	text, err := os.ReadFile(l.control)
	if err != nil {
		return l.rate
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil { // it is being written
		return l.rate
	}
	return max(int(rate), 0)
}

func (l *load) entry(n int64) queue.Entry {
	at := now()
	return queue.Entry{ID: job.NewID(), CreatedAt: at, RunnableAt: at, Spec: job.Spec{
		Name: job.Name(fmt.Sprintf("job-%d", n)), Type: job.Tool, Worker: "shell", Workspace: job.Workspace{Isolation: job.NoWorkspace},
		Instructions: "true #" + strings.Repeat("x", l.payload), Capabilities: []job.Capability{job.CanRunCommands},
	}}
}

// consume claims for all slots that are free, and works each job in its slot.
func (l *load) consume(ctx context.Context) error {
	changed := l.store.Watch(ctx)
	slots := make(chan struct{}, l.workers) // taken ones
	failed := make(chan error, l.workers)
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case slots <- struct{}{}:
			<-slots
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
		room := cap(slots) - len(slots)
		claims, err := l.store.Claim(ctx, queue.ClaimSpec{Holder: holder, Max: room, Now: now(), Lease: lease})
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		for _, e := range claims.Entries {
			slots <- struct{}{}
			working.Go(func() {
				if err := l.pass(ctx, e); err != nil {
					failed <- err
				}
				<-slots
			})
		}
		if len(claims.Entries) == room {
			continue
		}
		select { // nothing more is queued
		case <-changed:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// pass does a job that was claimed.
func (l *load) pass(ctx context.Context, e queue.Entry) error {
	began := now()
	l.latencies.add(began.Sub(e.CreatedAt))
	attempt := e.Attempts + 1
	err := l.store.Apply(ctx,
		queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: attempt, Fence: e.Fence, State: job.Pending, Started: began}},
		queue.Move{ID: e.ID, Fence: e.Fence, Attempt: attempt, To: job.Running})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if l.work > 0 {
		time.Sleep(l.work)
	}
	err = l.store.Apply(ctx, queue.Finish{ID: e.ID, Fence: e.Fence, Now: now(), Exit: job.ExitSucceeded, Attempt: attempt,
		Outcome: job.Outcome{State: job.RunCompleted, StartedAt: began, EndedAt: now()}})
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	l.completed.Add(1)
	return nil
}

// observe looks at the length of the queue.
func (l *load) observe(ctx context.Context) error {
	for pause(ctx, depthEvery) {
		c, err := l.store.Census(ctx)
		if err != nil {
			return fmt.Errorf("count the queue: %w", err)
		}
		l.length.Store(int64(c.Queued))
	}
	return nil
}

// tell prints samples, at whole multiples of the time between two.
func (l *load) tell(ctx context.Context) error {
	if !pause(ctx, time.Until(time.Now().Truncate(l.sample).Add(l.sample))) {
		return nil
	}
	const window = 30 * time.Second
	last, enqueued, completed := time.Now(), l.enqueued.Load(), l.completed.Load()
	tick := time.NewTicker(l.sample)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		at := time.Now()
		took := at.Sub(last).Seconds()
		e, c := l.enqueued.Load(), l.completed.Load()
		p := l.latencies.quantiles(at.Add(-window), 0.50, 0.95, 0.99)
		for _, m := range []struct {
			name   string
			value  float64
			window time.Duration
		}{
			{"claim_p50_ms", p[0], window}, {"claim_p95_ms", p[1], window}, {"claim_p99_ms", p[2], window},
			{"enqueue_rate", float64(e-enqueued) / took, l.sample}, {"completion_rate", float64(c-completed) / took, l.sample},
			{"queue_depth", float64(l.length.Load()), 0}, {"producer_target_rate", float64(l.target.Load()), 0},
		} {
			l.say(map[string]any{"t": stamp(at.UTC()), "kind": "adapter", "subject_kind": "adapter", "subject": "", "metric": m.name, "value": m.value, "window_s": m.window.Seconds()})
		}
		last, enqueued, completed = at, e, c
	}
}

// say prints one object.
func (l *load) say(x map[string]any) {
	x["system"], x["instance_id"] = system, 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Encode(x) //nolint:errcheck // who reads it has ended, and ends this process too
}
