package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/postgres"
)

// fleetMember is this scheduler as one of several that share a queue in a database: it
// stands by until it leads, and again when it does not any more.
type fleetMember struct {
	runs  *runner
	state *owned
	cfg   *config.Config
	db    *postgres.Database
	copy  *postgres.Copy
	stop  context.CancelFunc
	alive sync.WaitGroup
}

// How long a scheduler may take to say that it ends, and how often it says that it lives.
const (
	leaveTime     = 5 * time.Second
	announceEvery = 2 * time.Second
)

// serveFleet works whenever this scheduler leads, until ctx ends or it is told to stop.
func (runs *runner) serveFleet(ctx context.Context, state *owned, cfg *config.Config, o runOptions, next *replacement) (err error) {
	m, err := runs.join(ctx, state, cfg)
	if err != nil {
		return usage(err)
	}
	defer func() { err = errors.Join(err, m.leave(next.handover != nil)) }()
	for {
		term, err := m.standBy(ctx)
		if errors.Is(err, errInterrupted) {
			return nil
		}
		if err != nil {
			return failure(err)
		}
		again, err := m.lead(ctx, term, o, next)
		if !again {
			return err
		}
		state.log.Warn().Err(err).Msg("another scheduler leads; this one stands by")
		if err := m.copy.Reopen(ctx); err != nil {
			return failure(err)
		}
		m.copy.Follow()
	}
}

// join connects to the database and makes a copy of the queue.
func (runs *runner) join(ctx context.Context, state *owned, cfg *config.Config) (*fleetMember, error) {
	where, err := postgres.ParseWhere(cfg.Fleet.Store, runs.con.getenv)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find out this host's name: %w", err)
	}
	m := &fleetMember{runs: runs, state: state, cfg: cfg}
	m.db, err = postgres.Connect(ctx, postgres.Config{
		Where: where, Folder: state.dir.Fleet(), Log: state.logs.For(logging.Store), Lease: cfg.Fleet.Lease.Std(),
		Self: postgres.Member{Instance: string(state.dir.Instance()), Host: host, Version: runs.prog.version, Config: configHash(cfg)},
	})
	if err != nil {
		return nil, err
	}
	if m.copy, err = m.db.OpenCopy(ctx); err != nil {
		m.db.Close()
		return nil, err
	}
	if err = m.db.Join(ctx); errors.Is(err, postgres.ErrTwice) {
		err = fmt.Errorf("%w; give it a state directory of its own", err)
	}
	if err == nil {
		err = writeWhere(state.dir, where)
	}
	if err != nil {
		err = errors.Join(err, m.copy.Close())
		m.db.Close()
		return nil, err
	}
	state.docs, state.shared = m.db.Documents(), true
	m.copy.Follow()
	announcing, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.alive.Go(func() { m.announce(announcing) })
	return m, nil
}

// announce says that this scheduler lives until ctx ends.
func (m *fleetMember) announce(ctx context.Context) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for told := false; ; {
		asking, cancel := context.WithTimeout(ctx, announceEvery)
		err := m.db.Announce(asking)
		cancel()
		if err != nil && !told && ctx.Err() == nil {
			m.state.log.Warn().Err(err).Msg("the other schedulers do not see this one")
		}
		told = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// leave ends the membership; replaced says that the next program of this scheduler goes on.
func (m *fleetMember) leave(replaced bool) error {
	m.stop()
	m.alive.Wait()
	err := m.copy.Close()
	if !replaced {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		if err := m.db.Leave(ctx); err != nil {
			m.state.log.Warn().Err(err).Msg("the other schedulers were not told that this one ends")
		}
	}
	m.db.Close()
	return err
}

// standBy waits until this scheduler leads. errInterrupted: it was told to stop.
func (m *fleetMember) standBy(ctx context.Context) (*postgres.Term, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangUps := make(chan os.Signal, 1) // the configuration is read when this scheduler leads
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-stop:
		}
	})
	defer watching.Wait()
	defer close(stop)
	if n, err := daemon.NewNotifier(func(context.Context) error { return nil }, m.state.logs.For(logging.Daemon)); err != nil {
		return nil, err
	} else {
		n.Ready("standing by for the queue in the database")
		watching.Go(func() { n.Run(ctx) }) //nolint:errcheck // it ends with ctx
	}
	leader, err := m.db.Leader(ctx)
	if err == nil && leader.Alive() {
		m.state.log.Info().Str("leader", leader.Instance).Int64("epoch", leader.Epoch).Msg("another scheduler leads; this one stands by")
	}
	term, err := m.db.Campaign(ctx, m.copy.LeaderChanged())
	cancel(errElected)
	return term, err
}

var errElected = errors.New("this scheduler leads")

// lead works on the queue for a term; again says that another scheduler has taken over.
func (m *fleetMember) lead(ctx context.Context, term *postgres.Term, o runOptions, next *replacement) (again bool, err error) {
	log := m.state.log
	log.Info().Int64("epoch", term.Epoch()).Msg("this scheduler leads")
	lead, err := m.copy.Lead(ctx, term)
	if err != nil {
		m.release(term)
		return errors.Is(err, queue.ErrDeposed), failure(err)
	}
	lead.SetGrace(claimLease(m.cfg))
	m.state.store = lead.Store
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-term.Lost():
			stop(term.Err())
		case <-ended:
		}
	})
	o.stopped = func() { // what runs ends, and a database that is away is not waited for
		watching.Go(func() {
			late := time.NewTimer(stopTime(m.cfg) + giveUpAfter)
			defer late.Stop()
			select {
			case <-late.C:
				lead.GiveUp()
			case <-ended:
			}
		})
	}
	err = m.runs.serveQueue(leading, m.state, m.cfg, o, next)
	close(ended)
	watching.Wait()
	deposed := errors.Is(term.Err(), queue.ErrDeposed)
	if closing := lead.Close(); closing != nil && !deposed {
		err = errors.Join(err, failure(closing))
	}
	if next.handover == nil {
		m.release(term)
	} else {
		term.Abandon()
	}
	if deposed && !next.stopped.Load() && next.handover == nil {
		return true, term.Err()
	}
	return false, err
}

func (m *fleetMember) release(term *postgres.Term) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if err := term.Release(ctx); err != nil {
		m.state.log.Warn().Err(err).Msg("a standby takes over when the lease has ended")
	}
}

// configHash tells configurations apart. What may hold secrets of few bits is left out.
func configHash(cfg *config.Config) string {
	c := *cfg
	c.Telemetry, c.Secrets, c.Fleet = config.Telemetry{}, nil, config.Fleet{}
	text, err := json.Marshal(c)
	if err != nil {
		return "unknown"
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// claimLease is how long a claim holds that its leader does not extend any more, because
// it is dead or cut off from the database: until its runs have ended by themselves.
//
//	the last extension ── extendEvery ──► the next one hangs ── extendEvery ──► permits are
//	not renewed ── permit_validity ──► the core stops the run ── stop.* ──► gone
//
// and a tenth more for clocks that go differently.
func claimLease(cfg *config.Config) time.Duration {
	sum := 2*extendEvery(cfg) + cfg.Heartbeat.PermitValidity.Std() + stopTime(cfg)
	return sum + sum/10
}

// stopTime is how long a run may take to be stopped.
func stopTime(cfg *config.Config) time.Duration {
	return cfg.Stop.Interrupt.Std() + cfg.Stop.Terminate.Std() + cfg.Stop.Kill.Std()
}

// giveUpAfter is how much longer than its runs a scheduler that is told to stop waits for
// the database.
const giveUpAfter = 20 * time.Second

// extendEvery is how often a scheduler extends its claims.
func extendEvery(cfg *config.Config) time.Duration {
	return min(10*time.Second, cfg.Heartbeat.PermitValidity.Std()/4)
}

// whereFile, in the folder of the copy, says in which database the queue of a state
// directory lies, without a password.
const whereFile = "store"

func whereIn(dir *statedir.Dir) string { return filepath.Join(dir.Fleet(), whereFile) }

// database returns the address of the database that a state directory's queue lies in,
// "" if it lies in the directory.
func database(dir *statedir.Dir) (string, error) {
	text, err := os.ReadFile(whereIn(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// inDatabase returns an error where the queue of a state directory lies in a database,
// and only a scheduler that serves can be asked about it.
func (local *local) inDatabase(dir *statedir.Dir) error {
	where, err := database(dir)
	if err != nil {
		return usage(err)
	}
	if where == "" {
		return nil
	}
	return usage(fmt.Errorf("the queue of this state directory lies in the database %s", where),
		"start `scheduler serve` with it here, or ask another scheduler of the queue with --server",
		"`scheduler store copy` moves it back into a file")
}

// connect connects to the database of a queue, to look or to move it.
func (local *local) connect(ctx context.Context, dir *statedir.Dir, address string, log zerolog.Logger) (*postgres.Database, error) {
	where, err := postgres.ParseWhere(address, local.con.getenv)
	if err != nil {
		return nil, usage(err)
	}
	db, err := postgres.Connect(ctx, postgres.Config{
		Where: where, Folder: dir.Fleet(), Log: log, Self: postgres.Member{Instance: string(dir.Instance())},
	})
	if err != nil {
		return nil, usage(err)
	}
	return db, nil
}

// documents returns where the small state lies that belongs to the queue and not to a
// host: tokens, sessions, isolations, and what triggers did. done gives it up.
func (local *local) documents(ctx context.Context, dir *statedir.Dir) (_ statedir.Documents, done func(), err error) {
	where, err := database(dir)
	if err != nil {
		return nil, nil, usage(err)
	}
	if where == "" {
		return dir.Documents(), func() {}, nil
	}
	db, err := local.connect(ctx, dir, where, zerolog.Nop())
	if err != nil {
		return nil, nil, err
	}
	return db.Documents(), db.Close, nil
}
