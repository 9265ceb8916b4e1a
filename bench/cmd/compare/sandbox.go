package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// starts are those of a round, one after the other.
const starts = 50

// bareBwrap is bubblewrap around /bin/true as a person would call it.
func bareBwrap(bwrap string) []string {
	return []string{bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "/bin/true"}
}

// startCase is what a sandbox adds to the start of a run: its endpoint, its policy, its program, to the end of the last
// process and of what served it.
func startCase(ctx context.Context, b *bench) (_ []row, err error) {
	can := sandbox.Probe(ctx) // before there is a proc.Host
	path, err := b.folder("start")
	if err != nil {
		return nil, err
	}
	dir, err := statedir.Open(filepath.Join(path, "state"))
	if err != nil {
		return nil, err
	}
	host, err := proc.NewHost(proc.Config{Tag: job.RunTagVariable, Log: zerolog.Nop(), Confine: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()

	h := &heldStarts{host: host, can: can, dir: dir, work: filepath.Join(path, "work"), temp: filepath.Join(path, "temp")}
	for _, folder := range []string{h.work, h.temp} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
	}
	sides := []side{h.at(sandbox.None), b.profiled("standard", h.at(sandbox.Standard)), b.profiled("strict", h.at(sandbox.Strict)), func(ctx context.Context) (float64, error) {
		args := bareBwrap(can.Bwrap)
		return median(starts, timed(func() error { return host.Run(ctx, exec.CommandContext(ctx, args[0], args[1:]...)) }))
	}}
	missing := []error{nil, can.Standard, can.Bubblewrap, can.Bubblewrap}
	var has []side
	for i, why := range missing {
		if why == nil {
			has = append(has, sides[i])
		}
	}
	s, err := turns(ctx, b.rounds, has...)
	if err != nil {
		return nil, err
	}
	none := s[0]
	s = s[1:]
	var rows []row
	for i, level := range []struct {
		name string
		most float64 // milliseconds
	}{{"standard", 5}, {"strict", 25}} {
		what := "start of a run, held at level " + level.name + ", p50"
		if why := missing[i+1]; why != nil {
			rows = append(rows, leftOut(what, level.name, why))
			continue
		}
		adds := (s[0].median() - none.median()) * 1e3
		target := bound{most: level.most, unit: " ms"}
		rows = append(rows, row{what, showTime(s[0]), "not held " + showTime(none), fmt.Sprintf("adds %.1f ms", adds), target.String(), target.reached(adds)})
		if level.name == "strict" {
			rows = append(rows, latencies("  the same", s[0], "bare bwrap", s[1], bound{}))
		}
		s = s[1:]
	}
	return rows, nil
}

// heldStarts starts /bin/true as the core starts a run's program.
type heldStarts struct {
	host       *proc.Host
	can        sandbox.Host
	dir        *statedir.Dir
	work, temp string
}

// at returns the side of a level.
func (h *heldStarts) at(level sandbox.Level) side {
	return func(ctx context.Context) (float64, error) {
		return median(starts, timed(func() error { return h.one(ctx, level) }))
	}
}

func (h *heldStarts) one(ctx context.Context, level sandbox.Level) (err error) {
	spec := proc.Spec{Run: "bench", Path: "/bin/true", Dir: h.work, Env: []string{}, NewSession: true}
	held, err := agentcore.Confine(ctx, agentcore.Confining{
		Spec: &job.Spec{Sandbox: job.Sandbox{Level: job.SandboxLevel(level)}, Capabilities: []job.Capability{job.CanRead, job.CanEdit}}, Host: h.can, Dir: h.dir,
		Job: "01a1fcce-0000-7000-8000-000000000000", Worker: "shell", Workspace: []string{h.work}, Temp: h.temp, Scratch: filepath.Join(h.temp, "scratch"),
		User: os.Getenv, Emit: func(job.Event) {}, Stop: func(*worker.Stop) {},
	})
	if err != nil || held == nil {
		if err == nil {
			err = h.run(ctx, spec)
		}
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if err := held.MakeFolders(spec.Env); err != nil {
		return err
	}
	start, err := held.Policy(&worker.Command{Path: spec.Path}).Prepare(spec.Path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, start.Close()) }()
	return h.run(ctx, start.Apply(spec), func(*proc.Tree) { held.Started(start) })
}

func (h *heldStarts) run(ctx context.Context, spec proc.Spec, started ...func(*proc.Tree)) error {
	err, left := h.host.RunTree(ctx, spec, started...)
	return errors.Join(err, left)
}

// median does something many times, one after the other, and returns the median of what it says that it took, in seconds.
func median(times int, do func() (time.Duration, error)) (float64, error) {
	var all sample
	for range times {
		took, err := do()
		if err != nil {
			return 0, err
		}
		all = append(all, took.Seconds())
	}
	return all.median(), nil
}

func timed(do func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		began := time.Now()
		err := do()
		return time.Since(began), err
	}
}
