package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/agentsched/agentsched/job"
)

// peerRiver is River on a database.
type peerRiver[Tx any] struct {
	driver  func() riverdriver.Driver[Tx]
	inserts *river.Client[Tx]
	// filled is called when the jobs of a round are in the queue, before they are worked.
	// nil does nothing.
	filled func(context.Context) error
	close  func() error
	count  atomic.Int64
}

type riverSetting struct {
	workers  int
	cooldown time.Duration // least time between two fetches
}

// riverSettings are tried; the one with the highest rate is measured. A longer
// cooldown lets more completions gather in one commit.
func riverSettings() []riverSetting {
	return []riverSetting{
		{256, time.Millisecond}, {1000, time.Millisecond}, {2000, time.Millisecond}, {2000, 10 * time.Millisecond},
	}
}

// openRiver is River on a SQLite file with our own pragmas: the same durability, page
// cache and length of log. Its documentation asks for a pool of one connection, since
// SQLite has one writer.
func openRiver(ctx context.Context, path string) (*peerRiver[*sql.Tx], error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)", "temp_store(memory)",
		"cache_size(-65536)", "wal_autocheckpoint(4000)", "journal_size_limit(16777216)",
	}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	p := &peerRiver[*sql.Tx]{driver: func() riverdriver.Driver[*sql.Tx] { return riversqlite.New(db) }, close: db.Close}
	if err := p.setUp(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return p, nil
}

// setUp makes River's tables and the client that inserts.
func (p *peerRiver[Tx]) setUp(ctx context.Context) error {
	migrator, err := rivermigrate.New(p.driver(), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("set River up: %w", err)
	}
	// It notifies workers at most once in a cooldown, and none listen.
	p.inserts, err = river.NewClient(p.driver(), &river.Config{Logger: quiet(), PollOnly: true, FetchCooldown: time.Hour, FetchPollInterval: time.Hour})
	return err
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
}

// riverArgs has the same content as our entry.
type riverArgs struct {
	Spec job.Spec `json:"spec"`
}

func (riverArgs) Kind() string { return "noop" }

func (p *peerRiver[Tx]) insert(ctx context.Context) error {
	_, err := p.inserts.Insert(ctx, riverArgs{spec(p.count.Add(1))}, nil)
	return err
}

func (p *peerRiver[Tx]) workSide(setting riverSetting, n int) side {
	return func(ctx context.Context) (float64, error) {
		specs := make([]job.Spec, n)
		for i := range specs {
			specs[i] = spec(p.count.Add(1))
		}
		took, err := p.work(ctx, specs, setting, func(job.Spec) {})
		return rate(n, took), err
	}
}

// work inserts jobs, which is not measured, and has them worked, of which each is told:
// from the start of the first to the moment at which the completion of all is committed.
func (p *peerRiver[Tx]) work(ctx context.Context, specs []job.Spec, setting riverSetting, each func(job.Spec)) (took time.Duration, err error) {
	for some := range slices.Chunk(specs, 1000) {
		var params []river.InsertManyParams
		for _, s := range some {
			params = append(params, river.InsertManyParams{Args: riverArgs{s}})
		}
		if _, err := p.inserts.InsertManyFast(ctx, params); err != nil {
			return 0, err
		}
	}
	if p.filled != nil {
		if err := p.filled(ctx); err != nil {
			return 0, err
		}
	}
	first := make(chan time.Time, 1)
	var once sync.Once
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[riverArgs]) error {
		once.Do(func() { first <- time.Now() })
		each(j.Args.Spec)
		return nil
	}))
	client, err := river.NewClient(p.driver(), &river.Config{
		Logger: quiet(), PollOnly: true, FetchCooldown: setting.cooldown, FetchPollInterval: setting.cooldown, JobTimeout: -1,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: setting.workers}}, Workers: workers,
	})
	if err != nil {
		return 0, err
	}
	events, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: len(specs), Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	for range specs {
		select {
		case <-events: // sent after the commit
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return time.Since(<-first), nil
}
