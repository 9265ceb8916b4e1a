package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
)

// Config of a Host.
type Config struct {
	Tag    string // environment variable that marks every process of a run; "" means DefaultTag
	Cgroup string // name of the cgroup v2 directory that holds this host's trees, e.g. "agentsched-<instance>"; "" = none
	Log    zerolog.Logger
	// Confine takes from every child the capabilities that reach other processes, which root's programs have. Only Linux
	// has them.
	Confine bool
}

// Host owns the children of this process. There is one for a process, since being a child subreaper and reaping orphans
// are properties of the whole process.
//
// Three goroutines belong to it and end in Close: two spawners and the reaper. Where there is no subreaper, each leader has
// one that waits for it.
type Host struct {
	cfg Config
	sys system // what differs by operating system

	null *os.File // the null device, for children

	spawn   chan func()    // to the spawner; never closed, it ends with quit
	trusted chan func()    // to the one whose children keep capabilities, see Spec.KeepCapabilities
	kick    chan struct{}  // asks the reaper to look, capacity 1
	chld    chan os.Signal // SIGCHLD, capacity 1: a look finds all that is due, so a lost signal is no loss
	quit    chan struct{}
	loops   sync.WaitGroup // spawner and reaper
	leaders sync.WaitGroup // that are not reaped

	// mu guards what follows. It is held over fork+register and over look-up+reap, so that a pid is either registered
	// or an orphan at any moment that the reaper can observe.
	mu      sync.Mutex
	closed  bool
	started map[int]*child // every child that this host started and that is not reaped yet
	trees   map[*Tree]bool // trees not yet proven empty
	helpers int            // children of Run, which os/exec reaps outside of mu
}

// child is a registry entry; its address tells two uses of one pid apart.
type child struct {
	tree *Tree // that it leads; nil for a helper
}

// NewHost makes this process a child subreaper, looks for a cgroup v2 directory that it may write (it does without one
// if there is none) and starts to reap orphans.
func NewHost(cfg Config) (*Host, error) {
	if cfg.Tag == "" {
		cfg.Tag = DefaultTag
	}
	h := &Host{
		cfg:     cfg,
		spawn:   make(chan func()),
		trusted: make(chan func()),
		kick:    make(chan struct{}, 1),
		chld:    make(chan os.Signal, 1),
		quit:    make(chan struct{}),
		started: make(map[int]*child),
		trees:   make(map[*Tree]bool),
	}
	// The first use of os.Process tests whether pidfds work, by a child of its own. It must not meet the reaper.
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	var err error
	if h.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("open the null device: %w", err)
	}
	if err := h.open(); err != nil {
		return nil, errors.Join(err, h.null.Close())
	}
	signal.Notify(h.chld, syscall.SIGCHLD)
	h.loops.Go(func() { h.spawnLoop(h.spawn, cfg.Confine) })
	h.loops.Go(func() { h.spawnLoop(h.trusted, false) })
	h.loops.Go(h.reapLoop)
	if cfg.Confine {
		if err := h.onSpawner(confine); err != nil {
			h.cfg.Log.Warn().Err(err).Msg("the runs of root keep capabilities that reach other processes")
		}
	}
	return h, nil
}

// Cgroup returns the cgroup v2 directory that holds this host's trees, or "" if they get none.
func (h *Host) Cgroup() string { return h.cgroup() }

// Close kills the trees that are still live and every orphan, ends the goroutines and removes the cgroups. It returns
// ErrGhost if something survived. It may be called twice.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	var live []*Tree
	for t := range h.trees {
		live = append(live, t)
	}
	h.mu.Unlock()

	ctx := context.Background()
	errs := make([]error, len(live)+1)
	var stops sync.WaitGroup
	for i, t := range live {
		stops.Go(func() { _, errs[i] = t.Stop(ctx, Stages{}) })
	}
	stops.Wait()
	_, errs[len(live)] = h.SweepAdopted(ctx, Sweep{})

	err := errors.Join(errs...)
	if err == nil {
		h.leaders.Wait()
	}
	signal.Stop(h.chld)
	close(h.quit)
	h.loops.Wait()
	return errors.Join(err, h.close(), h.null.Close())
}

// spawnLoop forks the children of this host that spawn brings, from one thread that lives as long as the host.
//
// PR_SET_PDEATHSIG is tied to the parent thread, not to the parent process (prctl(2)): a child forked from whatever
// thread a goroutine happens to run on would be killed when the Go runtime retires that thread. Forking from a thread
// that is locked for the life of the Host makes "the thread ended" mean "the host ended", without a shim process between
// us and the worker that would have to pass on signals and exit codes.
func (h *Host) spawnLoop(spawn <-chan func(), confined bool) {
	runtime.LockOSThread()
	if !confined { // else the thread lacks capabilities, and ends with this goroutine
		defer runtime.UnlockOSThread()
	}
	for {
		select {
		case f := <-spawn:
			f()
		case <-h.quit:
			return
		}
	}
}

// onSpawner runs f on the spawner's thread and waits for it.
func (h *Host) onSpawner(f func() error) error { return h.on(h.spawn, f) }

func (h *Host) on(spawner chan<- func(), f func() error) error {
	done := make(chan error, 1)
	select {
	case spawner <- func() { done <- f() }:
		return <-done
	case <-h.quit:
		return ErrClosed
	}
}

func (h *Host) reapLoop() {
	for {
		select {
		case <-h.chld:
		case <-h.kick:
		case <-h.quit:
			return
		}
		for h.reap() {
		}
	}
}

// kickReaper asks for a look without waiting for it.
func (h *Host) kickReaper() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// register notes a child under mu, in the same critical section as its fork.
func (h *Host) register(pid int, leads *Tree) *child {
	c := &child{leads}
	h.started[pid] = c
	return c
}

// unregister forgets a reaped child, unless its pid already belongs to a new one. It is called under mu.
func (h *Host) unregister(pid int, c *child) {
	if h.started[pid] == c {
		delete(h.started, pid)
	}
}

// forget takes a tree that was proven empty off the list of live ones.
func (h *Host) forget(t *Tree) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.trees, t)
	t.members = nil
}

// liveRun finds the live tree of a run. It is called under mu.
func (h *Host) liveRun(run string) *Tree {
	for t := range h.trees {
		if t.run == run {
			return t
		}
	}
	return nil
}

func (h *Host) checkOpen() error {
	if h.closed {
		return fmt.Errorf("start a process: %w", ErrClosed)
	}
	return nil
}
