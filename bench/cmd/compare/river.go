package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/agentsched/agentsched/job"
)

// peerRiver is River on a SQLite file with our own pragmas: the same
// durability, page cache and length of log. Its documentation asks for a pool
// of one connection, since SQLite has one writer.
type peerRiver struct {
	db      *sql.DB
	inserts *river.Client[*sql.Tx]
	count   atomic.Int64
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

func openRiver(ctx context.Context, path string) (*peerRiver, error) {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)", "temp_store(memory)",
		"cache_size(-65536)", "wal_autocheckpoint(4000)", "journal_size_limit(16777216)",
	}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("set River up: %w", err), db.Close())
	}
	inserts, err := river.NewClient(riversqlite.New(db), &river.Config{Logger: quiet(), PollOnly: true})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &peerRiver{db: db, inserts: inserts}, nil
}

func (p *peerRiver) close() error { return p.db.Close() }

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
}

// riverArgs has the same content as our entry.
type riverArgs struct {
	Spec job.Spec `json:"spec"`
}

func (riverArgs) Kind() string { return "noop" }

func (p *peerRiver) insert(ctx context.Context) error {
	_, err := p.inserts.Insert(ctx, riverArgs{spec(p.count.Add(1))}, nil)
	return err
}

func (p *peerRiver) workSide(setting riverSetting, n int) side {
	return func(ctx context.Context) (float64, error) { return p.work(ctx, n, setting) }
}

// work inserts n jobs, not measured, and has them worked: from the start of the
// first to the moment at which the completion of all is committed.
func (p *peerRiver) work(ctx context.Context, n int, setting riverSetting) (_ float64, err error) {
	for done := 0; done < n; done += 1000 {
		var params []river.InsertManyParams
		for range min(1000, n-done) {
			params = append(params, river.InsertManyParams{Args: riverArgs{spec(p.count.Add(1))}})
		}
		if _, err := p.inserts.InsertManyFast(ctx, params); err != nil {
			return 0, err
		}
	}
	first := make(chan time.Time, 1)
	var once sync.Once
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[riverArgs]) error {
		once.Do(func() { first <- time.Now() })
		return nil
	}))
	client, err := river.NewClient(riversqlite.New(p.db), &river.Config{
		Logger: quiet(), PollOnly: true, FetchCooldown: setting.cooldown, FetchPollInterval: setting.cooldown,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: setting.workers}}, Workers: workers,
	})
	if err != nil {
		return 0, err
	}
	events, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	for range n {
		select {
		case <-events: // sent after the commit
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	return rate(n, time.Since(<-first)), nil
}
