package cli

import (
	"cmp"
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

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/fleet"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/objects"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/postgres"
)

// fleetMember is this scheduler as one of several that share a queue in a database: it
// stands by until it leads, and again when it does not any more.
type fleetMember struct {
	runs      *runner
	state     *owned
	cfg       *config.Config
	db        *postgres.Database
	bucket    *objects.Bucket // nil: files of attempts lie in the database
	copy      *postgres.Copy
	identity  *fleet.Identity
	at        *fleet.Listener
	directory *fleet.Directory
	election  chan struct{} // capacity 1: who leads may have changed
	stop      context.CancelFunc
	alive     sync.WaitGroup
}

// How long a scheduler may take to say that it ends, and how often it says that it lives.
const (
	leaveTime     = 5 * time.Second
	announceEvery = time.Second
	lookTime      = 5 * time.Second
)

// serveFleet works whenever this scheduler leads, until ctx ends or it is told to stop.
func (runs *runner) serveFleet(ctx context.Context, state *owned, cfg *config.Config, o runOptions, next *replacement) (err error) {
	// One channel for all that this scheduler will be: a signal that comes while it is elected is for what it is then.
	runs.signals = make(chan os.Signal, 2)
	signal.Notify(runs.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(runs.signals)
	m, err := runs.join(ctx, state, cfg)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	if err != nil {
		return usage(err)
	}
	defer func() { err = errors.Join(err, m.leave(next.handover != nil)) }()
	for again := true; again && err == nil; {
		again, err = m.turn(ctx, o, next)
	}
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// turn stands by, leads, and makes the copy anew after that; again: it can stand by once more.
// errInterrupted: it was told to stop.
func (m *fleetMember) turn(ctx context.Context, o runOptions, next *replacement) (again bool, err error) {
	term, err := m.standBy(ctx)
	if errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {
		return true, ended(m.runs.waitFor(ctx, m.state, m.look))
	}
	if err != nil {
		return false, ended(err)
	}
	if again, err = m.lead(ctx, term, o, next); !again {
		return false, err
	}
	m.state.log.Warn().Err(err).Msg("this scheduler does not lead any more, and stands by")
	if err = m.runs.waitFor(ctx, m.state, m.copy.Reopen); err == nil {
		m.copy.Follow()
	}
	return true, ended(err)
}

// ended returns the error of a member that cannot go on, or was told to stop; nil: neither.
func ended(err error) error {
	if err == nil || errors.Is(err, errInterrupted) {
		return err
	}
	return failure(err)
}

// join connects to the database and makes a copy of the queue, as soon as the database can be asked.
// errInterrupted: it was told to stop meanwhile.
func (runs *runner) join(ctx context.Context, state *owned, cfg *config.Config) (_ *fleetMember, err error) {
	where, err := postgres.ParseWhere(cfg.Fleet.Store, runs.con.getenv)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find out this host's name: %w", err)
	}
	m := &fleetMember{runs: runs, state: state, cfg: cfg, directory: &fleet.Directory{}, election: make(chan struct{}, 1)}
	if m.identity, err = fleet.NewIdentity(); err != nil {
		return nil, err
	}
	if m.bucket, err = openBucket(cfg, runs.con.getenv); err != nil {
		return nil, err
	}
	if m.at, err = fleet.Listen(cmp.Or(cfg.Fleet.Listen, "127.0.0.1:0")); err != nil {
		return nil, fmt.Errorf("fleet.listen: %w", err)
	}
	defer func() {
		if err != nil {
			m.close() //nolint:errcheck // err says what went wrong
		}
	}()
	at := postgres.Config{
		Where: where, Folder: state.dir.Fleet(), Log: state.logs.For(logging.Store), Lease: cfg.Fleet.Lease.Std(),
		Self: postgres.Member{
			Instance: string(state.dir.Instance()), Host: host, Version: runs.prog.version, Config: configHash(cfg),
			Address: cmp.Or(cfg.Fleet.Advertise, m.at.Addr().String()), Fingerprint: m.identity.Fingerprint(),
		},
	}
	if err = runs.waitFor(ctx, state, func(ctx context.Context) error { return m.connect(ctx, at) }); err == nil {
		err = writeWhere(state.dir, where)
	}
	if err != nil {
		return nil, err
	}
	files := m.db.Artifacts(m.bucket)
	state.docs, state.parcels, state.artifacts, state.shared = m.db.Documents(), m.db.Parcels(), files, true
	m.copy.Follow()
	announcing, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.alive.Go(func() { m.announce(announcing) })
	m.alive.Go(func() { m.tryBucket(announcing, files) })
	return m, nil
}

// connect connects to the database, makes the copy and announces this scheduler, each unless it has been done.
func (m *fleetMember) connect(ctx context.Context, at postgres.Config) (err error) {
	if m.db == nil {
		if m.db, err = postgres.Connect(ctx, at); err != nil {
			return err
		}
	}
	if m.copy == nil {
		if m.copy, err = m.db.OpenCopy(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err = m.db.Join(ctx); errors.Is(err, postgres.ErrTwice) {
		err = fmt.Errorf("%w; give it a state directory of its own", err)
	}
	return err
}

// announce says that this scheduler lives, and looks who else does and who leads, until ctx
// ends.
func (m *fleetMember) announce(ctx context.Context) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for told := false; ; {
		err := m.look(ctx)
		if err != nil && !told && ctx.Err() == nil {
			m.state.log.Warn().Err(err).Msg("the other schedulers do not see this one, nor it them")
		}
		told = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.copy.LeaderChanged():
		}
		select {
		case m.election <- struct{}{}:
		default:
		}
	}
}

func (m *fleetMember) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if err := m.db.Announce(ctx); err != nil {
		return err
	}
	list, err := m.db.Members(ctx)
	if err != nil {
		return err
	}
	l, err := m.db.Leader(ctx)
	if err != nil {
		return err
	}
	var leader fleet.Leader
	var known []string
	for i := range list {
		if known = append(known, list[i].Fingerprint); list[i].Instance == l.Instance && l.Alive() {
			leader = fleet.Leader{Epoch: l.Epoch, Instance: l.Instance, Address: list[i].Address, Fingerprint: list[i].Fingerprint, Since: l.Since}
		}
	}
	m.directory.Set(leader, known...)
	return nil
}

// schedulers returns those of the queue, for people.
func (m *fleetMember) schedulers(ctx context.Context) (f api.Fleet, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	list, err := m.db.Members(ctx)
	if err != nil {
		return f, err
	}
	l, err := m.db.Leader(ctx)
	if err != nil {
		return f, err
	}
	terms, err := m.db.Terms(ctx, shownTerms)
	if err != nil {
		return f, err
	}
	f.Instance = string(m.state.dir.Instance())
	hosts := map[string]string{}
	for i := range list {
		x := &list[i]
		hosts[x.Instance] = x.Host
		one := api.FleetMember{Instance: x.Instance, Host: x.Host, Address: x.Address, Version: x.Version, Config: x.Config, Role: api.FleetStandby, Since: x.Started, Seen: utcNow().Add(-x.Silent)}
		if x.Instance == l.Instance && l.Alive() {
			one.Role, one.Since = api.FleetLeader, l.Since
		}
		f.Members = append(f.Members, one)
	}
	for _, t := range terms {
		if _, known := hosts[t.Instance]; !known {
			hosts[t.Instance] = "" // it has ended
		}
	}
	for _, t := range terms {
		f.History = append(f.History, api.FleetTerm{Epoch: t.Epoch, Instance: t.Instance, Host: hosts[t.Instance], Since: t.Since, Why: whyOf(t.Reason, hosts)})
	}
	if l.Alive() {
		f.Leader = &api.FleetTerm{Epoch: l.Epoch, Instance: l.Instance, Host: hosts[l.Instance], Since: l.Since, Why: whyOf(l.Reason, hosts)}
	}
	return f, nil
}

// whyOf is a reason of the database's with schedulers called as they are shown elsewhere.
func whyOf(reason string, hosts map[string]string) string {
	for instance, host := range hosts {
		if instance != "" {
			reason = strings.ReplaceAll(reason, instance, shortInstance(instance)+whereOf(host))
		}
	}
	return reason
}

// shownTerms is how many times for which somebody has led are shown.
const shownTerms = 20

// together returns what the listeners need; passing: to stand by.
func (m *fleetMember) together(revision func() int64, pass *fleet.Pass) *together {
	return &together{
		self:  api.FleetMember{Instance: string(m.state.dir.Instance()), Version: m.runs.prog.version, Config: configHash(m.cfg)},
		fleet: m.schedulers, at: m.at, pass: pass,
		peers: &fleet.Peers{Identity: m.identity, Members: m.directory, Revision: revision},
	}
}

// leave ends the membership; replaced says that the next program of this scheduler goes on.
func (m *fleetMember) leave(replaced bool) error {
	m.stop()
	m.alive.Wait()
	if !replaced {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		if err := m.db.Leave(ctx); err != nil {
			m.state.log.Warn().Err(err).Msg("the other schedulers were not told that this one ends")
		}
	}
	return m.close()
}

func (m *fleetMember) close() error {
	err := m.at.Close()
	if m.copy != nil {
		err = errors.Join(err, m.copy.Close())
	}
	if m.db != nil {
		m.db.Close()
	}
	if m.bucket != nil {
		m.bucket.Close()
	}
	return err
}

// standBy answers what a standby can and waits until this scheduler leads.
// errInterrupted: it was told to stop.
func (m *fleetMember) standBy(ctx context.Context) (*postgres.Term, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel(errElected)
	parts.Go(func() { m.runs.interrupted(ctx, cancel) })
	switch term, err := m.db.Stand(ctx); {
	case term != nil:
		return m.elected(ctx, cancel, term)
	case err != nil && ctx.Err() == nil:
		m.state.log.Warn().Err(err).Msg("the database cannot be asked who leads; this scheduler stands by")
	default:
		m.state.log.Info().Msg("another scheduler leads; this one stands by")
	}
	if err := m.answer(ctx, &parts); err != nil {
		return nil, err
	}
	term, err := m.db.Campaign(ctx, m.election)
	if err != nil {
		return nil, err
	}
	return m.elected(ctx, cancel, term)
}

// elected gives a term back that came when the scheduler had been told to stop.
func (m *fleetMember) elected(ctx context.Context, cancel context.CancelCauseFunc, term *postgres.Term) (*postgres.Term, error) {
	cancel(errElected) // whichever comes first counts
	if term != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		m.release(term)
		return nil, errInterrupted
	}
	return term, nil
}

// answer serves the doors of a scheduler that stands by until ctx ends.
func (m *fleetMember) answer(ctx context.Context, parts *sync.WaitGroup) error {
	copied := m.copy.Store()
	if copied == nil {
		m.state.log.Warn().Msg("the database's tables are of an older version: this scheduler answers nothing until it leads, which brings them up to date")
		return nil
	}
	log := m.state.logs.For(logging.API)
	pass := fleet.NewPass(fleet.PassConfig{Identity: m.identity, Members: m.directory, Copy: m.copy, Log: log})
	e, err := m.runs.newStandby(ctx, m.state, m.cfg, copied, m.together(nil, pass))
	if err != nil {
		return err
	}
	if e.notifier, err = daemon.NewNotifier(func(context.Context) error { return nil }, m.state.logs.For(logging.Daemon)); err != nil {
		return errors.Join(err, e.close())
	}
	e.listeners.opened = func() { e.notifier.Ready("standing by for the queue in the database") }
	e.beside = append(e.beside, daemon.Part{Name: "sign of life", Run: e.notifier.Run})
	parts.Go(func() {
		defer pass.Close()
		kept, err := e.standBy(ctx)
		if err = errors.Join(err, e.close()); err != nil && ctx.Err() == nil {
			m.state.log.Error().Err(err).Msg("this scheduler stands by, and answers nothing")
		}
		if kept != nil {
			m.runs.inherited = kept
		}
	})
	return nil
}

var errElected = errors.New("this scheduler leads")

// lead works on the queue for a term; again says that another scheduler has taken over.
func (m *fleetMember) lead(ctx context.Context, term *postgres.Term, o runOptions, next *replacement) (again bool, err error) {
	log := m.state.log
	log.Info().Int64("epoch", term.Epoch()).Msg("this scheduler leads")
	lead, err := m.copy.Lead(ctx, term)
	if err != nil {
		m.release(term)
		return !errors.Is(err, queue.ErrNewerVersion), failure(err)
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
	o.together = m.together(lead.Revision, nil)
	err = m.runs.serveQueue(leading, m.state, m.cfg, o, next)
	close(ended)
	watching.Wait()
	closing := lead.Close() // it sends what waits, and may hear only then that another scheduler leads
	deposed := errors.Is(term.Err(), queue.ErrDeposed)
	if closing != nil && !deposed {
		err = errors.Join(err, failure(closing))
	}
	if next.handover == nil {
		m.release(term)
	} else {
		term.Abandon()
	}
	switch {
	case !deposed && next.handover == nil && errors.Is(err, queue.ErrUnavailable) && !next.stopped.Load():
		return true, err // it was cut off while it began
	case !deposed || next.handover != nil:
		return false, err
	case !next.stopped.Load():
		return true, term.Err()
	case errors.Is(err, queue.ErrDeposed):
		return false, nil // it was told to end, and another scheduler has the queue
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
func claimLease(cfg *config.Config) time.Duration { return leaseOf(cfg).Claim() }

// leaseOf returns what times the runs of a configuration.
func leaseOf(cfg *config.Config) ipc.Lease {
	stages := ipc.Stages{Interrupt: cfg.Stop.Interrupt, Terminate: cfg.Stop.Terminate, Kill: cfg.Stop.Kill}
	return ipc.Lease{Extend: extendEvery(cfg), Validity: cfg.Heartbeat.PermitValidity.Std(), Stop: stages.Longest(), Node: cfg.Fleet.NodeLease.Std()}
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
	if cfg.Heartbeat.PermitValidity == 0 {
		return maxExtendEvery
	}
	return min(maxExtendEvery, cfg.Heartbeat.PermitValidity.Std()/4)
}

const maxExtendEvery = 10 * time.Second

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
func (local *local) connect(ctx context.Context, dir *statedir.Dir, where postgres.Where) (*postgres.Database, error) {
	db, err := postgres.Connect(ctx, postgres.Config{
		Where: where, Folder: dir.Fleet(), Log: zerolog.Nop(), Self: postgres.Member{Instance: string(dir.Instance())},
	})
	if err != nil {
		return nil, usage(err)
	}
	return db, nil
}

// documents returns where the small state lies that belongs to the queue and not to a
// host: tokens, sessions, isolations, and what triggers did. done gives it up.
// A state directory that no scheduler has served yet is of the database that the configuration names.
func (local *local) documents(ctx context.Context, dir *statedir.Dir) (_ statedir.Documents, done func(), err error) {
	address, err := database(dir)
	if err != nil {
		return nil, nil, usage(err)
	}
	if address == "" {
		cfg, err := local.prog.readConfig(local.prog.configOptions())
		if err != nil {
			return nil, nil, err
		}
		address = cfg.Fleet.Store
	}
	if address == "" {
		return dir.Documents(), func() {}, nil
	}
	where, err := postgres.ParseWhere(address, local.con.getenv)
	if err != nil {
		return nil, nil, usage(err)
	}
	db, err := local.connect(ctx, dir, where)
	if err != nil {
		return nil, nil, err
	}
	return db.Documents(), db.Close, nil
}
