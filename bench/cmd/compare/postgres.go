package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/postgres"
)

const (
	// Writes of a round on PostgreSQL, and jobs: some seconds each.
	sharedWrites, sharedWorked, sharedTried = 5000, 20_000, 10_000 // both sides work all that they have queued
	workerConns                             = 64                   // beside River's workers
)

// insertConns are the sizes of the pool that River's inserts are tried with.
func insertConns() []int32 { return []int32{8, 16, 32, callers} }

// sharedInFlight is inFlight where a commit takes longer, as sharedSettings are.
func sharedInFlight() []int { return append(inFlight(), 5000) }

// sharedSettings are tried as riverSettings are. Its own benchmark has 2000 workers.
func sharedSettings() []riverSetting {
	return append(riverSettings(), riverSetting{2000, 50 * time.Millisecond}, riverSetting{5000, time.Millisecond}, riverSetting{5000, 10 * time.Millisecond})
}

// openShared opens our queue in a database; what it keeps on this host is in dir.
func openShared(ctx context.Context, address, dir string) (queue.Store, error) {
	where, err := postgres.ParseWhere(address, os.Getenv)
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Config{Where: where, Folder: dir, Log: zerolog.Nop(), Self: postgres.Member{Instance: "compare"}})
}

// postgresCase is the queue that several hosts share: ours and River in databases of one
// server.
func postgresCase(ctx context.Context, b *bench) (_ []row, err error) {
	enqueued := fmt.Sprintf("on PostgreSQL: durable enqueue, %d callers", callers)
	claimed, fair := "on PostgreSQL: claim + complete, 2·10^4 queued", "on PostgreSQL: "+fairWhat
	server, why := pgtest.New(pgtest.In(b.dir), pgtest.Conf(
		"shared_buffers = 256MB", "max_wal_size = 8GB", "checkpoint_timeout = 1h", // no round has a checkpoint, on neither side
	))
	if why != nil {
		return []row{leftOut(enqueued, "River", why), leftOut(claimed, "River", why), leftOut(fair, "River", why)}, nil
	}
	defer func() { err = joinClose(err, server.Close) }()
	var beds []*sharedBed
	for i := range 3 {
		ours, err := openSharedBed(ctx, b, server, fmt.Sprint("shared", i))
		if err != nil {
			return nil, err
		}
		defer ours.store.Close()
		beds = append(beds, ours)
	}
	inserts, err := tuneInserts(ctx, server)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, inserts.close) }()
	database, err := server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	peer, err := openSharedRiver(ctx, server.Socket(database), workerConns)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, peer.close) }()
	slots, best, err := tune(ctx, beds[1].workSide, sharedInFlight(), sharedSettings(), func(s riverSetting) side { return peer.workSide(s, sharedTried) })
	if err != nil {
		return nil, err
	}
	s, err := turns(ctx, b.rounds,
		b.profiled("pgenqueue64", enqueueSide(beds[0].enqueue, callers, sharedWrites)),
		enqueueSide(inserts.insert, callers, sharedWrites),
		b.profiled("pgclaim", beds[1].workSide(slots)),
		peer.workSide(best, sharedWorked),
		b.profiled("pgclaimfew", beds[1].workSide(few)),
		peer.workSide(riverSetting{few, time.Millisecond}, sharedWorked/2),
		beds[2].fairSide(),
		peer.fairSide(),
	)
	if err != nil {
		return nil, err
	}
	return []row{
		rates(enqueued, s[0], "River", s[1], atLeast(3)),
		rates(fmt.Sprintf("%s, %d at once", claimed, slots), s[2], fmt.Sprintf("River, %d at once", best.workers), s[3], atLeast(1)),
		rates(fmt.Sprintf("  2·10^4, %d at once on both sides", few), s[4], fmt.Sprintf("River, %d at once", few), s[5], bound{}),
		ratioRow(fair, showPart(s[6]), "River "+showPart(s[7]), s[6].median()/s[7].median(), atLeast(8)),
	}, nil
}

// sharedBed is our store on a database of its own.
type sharedBed struct {
	*bed
	address string
}

func openSharedBed(ctx context.Context, b *bench, server *pgtest.Server, name string) (*sharedBed, error) {
	database, err := server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := b.folder(name)
	if err != nil {
		return nil, err
	}
	address := server.Socket(database)
	store, err := openShared(ctx, address, dir)
	if err != nil {
		return nil, err
	}
	shared, err := newBed(ctx, store, 0)
	if err != nil {
		return nil, err
	}
	return &sharedBed{shared, address}, nil
}

// workSide works jobs as peerRiver.workSide does: before they are, those of earlier rounds
// are gone, they are queued, and the planner knows them. It counts from when the first one
// began.
func (b *sharedBed) workSide(slots int) side {
	return func(ctx context.Context) (float64, error) {
		if err := b.forget(ctx); err != nil {
			return 0, err
		}
		if err := b.fill(ctx, sharedWorked); err != nil {
			return 0, err
		}
		if err := b.vacuum(ctx); err != nil {
			return 0, err
		}
		first, err := b.work(ctx, sharedWorked, slots, false)
		return rate(sharedWorked, time.Since(first)), err
	}
}

// forget removes what has ended.
func (b *sharedBed) forget(ctx context.Context) error {
	for spec := (queue.PruneSpec{Before: now(), Max: fillStep}); ; {
		gone, err := b.store.Prune(ctx, spec)
		if err != nil || len(gone) < spec.Max {
			return err
		}
	}
}

func (b *sharedBed) vacuum(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.address)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM ANALYZE")
	return joinClose(err, func() error { return conn.Close(ctx) })
}

// tuneInserts returns the River that inserts fastest, of some on one database.
func tuneInserts(ctx context.Context, server *pgtest.Server) (best *peerRiver[pgx.Tx], err error) {
	database, err := server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	var all []*peerRiver[pgx.Tx]
	defer func() {
		for _, p := range all {
			if p != best {
				err = joinClose(err, p.close)
			}
		}
	}()
	var sides []side
	for _, conns := range insertConns() {
		p, err := openSharedRiver(ctx, server.Socket(database), conns)
		if err != nil {
			return nil, err
		}
		all, sides = append(all, p), append(sides, enqueueSide(p.insert, callers, sharedWrites/2))
	}
	s, err := turns(ctx, tuneRounds, sides...)
	if err != nil {
		return nil, err
	}
	return all[fastest(s)], nil
}

// openSharedRiver is River in a database. Before a round's jobs are worked those of
// earlier rounds are gone, and the planner knows the new ones.
func openSharedRiver(ctx context.Context, address string, conns int32) (*peerRiver[pgx.Tx], error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &peerRiver[pgx.Tx]{
		driver: func() riverdriver.Driver[pgx.Tx] { return riverpgxv5.New(pool) },
		filled: func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "DELETE FROM river_job WHERE state = 'completed'")
			if err == nil {
				_, err = pool.Exec(ctx, "VACUUM ANALYZE river_job")
			}
			return err
		},
		close: func() error { pool.Close(); return nil },
	}
	if err := p.setUp(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return p, nil
}
