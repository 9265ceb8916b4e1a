package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/workspace/travel"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// inventory is what this host offers as a node.
type inventory struct {
	runs    *runner
	cfg     *config.Config
	slots   int
	labels  map[string]string
	mirrors string             // their folder
	level   job.SandboxLevel   // at which runs are held whose job names none
	levels  []job.SandboxLevel // that a job may name

	mu    sync.Mutex // guards looks
	looks map[job.WorkerKind]workerLook
}

// workerLook is what was found of a worker, and by which signs: while those are the same, its program is not asked again.
type workerLook struct {
	signs string
	found node.Worker
}

// look looks at what this host offers. It is cheap where nothing has changed.
func (v *inventory) look(ctx context.Context) node.Inventory {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	out := node.Inventory{
		Host: name, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Slots: cmp.Or(v.slots, v.cfg.Concurrency.Max), Labels: v.labels,
		Memory: int64(v.cfg.Limits.Total.Memory), Sandbox: v.level, Levels: v.levels, Mirrors: travel.Names(v.mirrors, node.MaxMirrors),
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.looks == nil {
		v.looks = map[job.WorkerKind]workerLook{}
	}
	for _, name := range v.runs.prog.workerKinds(v.cfg) {
		kind := job.WorkerKind(name)
		a, settings := v.runs.prog.adapters[cmp.Or(v.cfg.Workers[kind].Adapter, name)], v.cfg.Workers[kind]
		signs := signsOf(a, settings, v.runs.con.getenv)
		before, known := v.looks[kind]
		if !known || before.signs != signs {
			f := examineWorker(ctx, kind, a, v.runs.prog.packages().Package(kind), settings, v.runs.con.getenv)
			if f.Status == "ok" {
				f.Note = "" // which says what it is tested with
			}
			before = workerLook{signs, node.Worker{Kind: kind, Version: f.Version, Ready: f.Status == "ok" || f.Status == "warning" && !strings.Contains(f.Note, notLoggedIn), Why: f.Note}}
			if f.Status != "error" { // else it is asked again
				v.looks[kind] = before
			}
		}
		out.Workers = append(out.Workers, before.found)
	}
	return out
}

// signsOf tells, without starting it, whether a worker is another one than before, or logged in otherwise.
func signsOf(a worker.Adapter, s job.WorkerSettings, getenv func(string) string) string {
	path, err := a.Locate(s)
	missing := (*worker.NotInstalledError)(nil)
	if err != nil && !errors.As(err, &missing) {
		return "error: " + err.Error()
	}
	signs := path
	if info, err := os.Stat(path); err == nil {
		signs += fmt.Sprint(" ", info.ModTime().UnixNano(), " ", info.Size())
	}
	if c, ok := a.(worker.Credentialed); ok {
		signs += " " + c.Credentials(s, getenv)
	}
	return signs
}
