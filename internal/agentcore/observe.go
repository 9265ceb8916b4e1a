package agentcore

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// maxObserved bounds how many different things are told of a run that nothing holds.
const maxObserved = 256

// observation tells what a run in report mode does that its sandbox would refuse. The run itself is as without one. It is
// a worker.Sandbox.
type observation struct {
	held  Held
	broad []string
	user  func(name string) string
	rules egress.Rules
	noNew bool  // setuid programs have no effect
	blind error // why nothing can be told, or nil
	emit  func(job.Event)

	mu    sync.Mutex // guards what follows
	told  map[job.Refusal]bool
	total int
}

// reports says whether the run is told of instead of held. A job that asks for a level is held at that.
func (e *execution) reports() bool {
	return e.settings.Sandbox.Report && e.submit.Spec.Sandbox.Level == ""
}

// observe returns what tells of the run.
func (e *execution) observe(ws *workspace.Workspace, dir string) (*observation, error) {
	home := e.home()
	o := &observation{
		held: Held{
			Level: sandbox.Level(e.settings.Sandbox.Level), Spec: &e.submit.Spec, Settings: e.settings.Sandbox,
			Own: []string{home, e.temp, filepath.Join(dir, "scratch")},
		},
		user: e.userVariable, emit: e.emit, told: map[job.Refusal]bool{},
	}
	o.blind = sandbox.CanReport()
	if errors.Is(o.blind, sandbox.ErrNoNewPrivileges) && e.settings.Sandbox.ReportNoNewPrivileges {
		o.noNew, o.blind = true, nil
	}
	if o.blind != nil {
		return o, nil
	}
	var err error
	if o.rules, err = egress.Parse(e.submit.Spec.NetworkHosts(), egress.Presets()); err != nil {
		o.rules = egress.Rules{} // the job runs as it did before anybody looked at its network
	}
	o.held.Borrowed, o.held.Workspace = ws.Grants()
	users := o.user("HOME")
	if o.held.Hidden, err = hiddenPaths(users); err != nil {
		return nil, err
	}
	o.held.State, o.held.Programs = e.session.dir.Path(), e.settings.Workers[e.submit.Choice.Worker].Command
	o.held.Own = append(o.held.Own, usersCaches(users, o.user)...)
	if filepath.IsAbs(users) {
		for _, folder := range []string{"", ".cache", ".config", ".local", ".local/share", ".local/state"} {
			o.broad = append(o.broad, filepath.Join(users, filepath.FromSlash(folder)))
		}
	}
	return o, nil
}

// usersCaches returns the user's caches of toolchains, in whose place a confined run has those of its tenant, as far as
// they exist: that a run uses them is no wish for a grant.
func usersCaches(home string, getenv func(name string) string) []string {
	var list []string
	for _, l := range []located{
		{"GOMODCACHE", "go/pkg"}, {"GOCACHE", ".cache/go-build"}, {"CARGO_HOME", ".cargo"},
		{"npm_config_cache", ".npm"}, {"YARN_CACHE_FOLDER", ".cache/yarn"}, {"PNPM_HOME", ".local/share/pnpm"},
		{"DENO_DIR", ".cache/deno"}, {"BUN_INSTALL_CACHE_DIR", ".bun/install/cache"}, {"PIP_CACHE_DIR", ".cache/pip"}, {"UV_CACHE_DIR", ".cache/uv"},
		{"GRADLE_USER_HOME", ".gradle"}, {"COMPOSER_CACHE_DIR", ".cache/composer"}, {"BUNDLE_USER_CACHE", ".bundle/cache"}, {"NUGET_PACKAGES", ".nuget/packages"},
		{"", ".m2/repository"},
	} {
		path := filepath.Join(home, filepath.FromSlash(l.folder))
		if named := getenv(l.variable); l.variable != "" && named != "" {
			path = filepath.Clean(named)
		}
		if isFolder(path) {
			list = append(list, path)
		}
	}
	return list
}

// Policy returns what the process of a command is compared with.
func (o *observation) Policy(cmd *worker.Command) *sandbox.Policy {
	held := o.held.For(cmd, o.user)
	p := held.Policy()
	p.Write = slices.DeleteFunc(p.Write, missing) // such as a private folder that this worker does without
	p.Report, p.NoNewPrivileges, p.Broad = true, o.noNew, o.broad
	p.Denied = o.saw
	return &p
}

// Started has nothing to serve.
func (o *observation) Started(*sandbox.Start) {}

// saw tells what would have been refused.
func (o *observation) saw(d sandbox.Denial) {
	if addr, err := netip.ParseAddrPort(d.Detail); d.Call == "connect" && err == nil && o.rules.Allow(addr.Addr().String(), addr.Port()) {
		return
	}
	r := job.Refusal{Act: d.Call, Detail: d.Detail, Hidden: d.Hidden, Broad: d.Broad}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[r] {
		return
	}
	o.total++
	switch {
	case len(o.told) < maxObserved:
		o.told[r] = true
		told := r
		o.emit(job.Event{Kind: job.EventWarning, Text: "would be refused by the sandbox: " + d.String(), Refusal: &told})
	case o.total == maxObserved+1:
		o.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("would be refused by the sandbox: more than %d different things; the rest is not told", maxObserved)})
	}
}

// holding is what is recorded of how the run was looked at.
func (o *observation) holding() *job.Holding {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := &job.Holding{Level: job.SandboxLevel(o.held.Level), Report: true, Denied: o.total, NotHeld: []string{"Nothing held the run: it could do everything that its user may."}}
	h.Unrecorded = o.blind != nil
	switch {
	case errors.Is(o.blind, sandbox.ErrNoNewPrivileges):
		h.NotHeld = append(h.NotHeld, "Nothing was recorded, since "+o.blind.Error()+": `sandbox: {mode: report}` in the configuration allows to take that effect from them.")
	case o.blind != nil:
		h.NotHeld = append(h.NotHeld, "Nothing was recorded: "+o.blind.Error()+".")
	case o.noNew:
		h.NotHeld = append(h.NotHeld, "Setuid programs had no effect, so that the run could be watched.")
	}
	return h
}

// sandbox returns what holds the run or tells of it, for a Runner; nil if nothing does.
func (e *execution) sandbox() worker.Sandbox {
	switch {
	case e.observed != nil && e.observed.blind == nil:
		return e.observed
	case e.held != nil:
		return e.held
	}
	return nil
}

// holding is what is recorded of that.
func (e *execution) holding() *job.Holding {
	if e.observed != nil {
		return e.observed.holding()
	}
	return e.held.holding()
}
