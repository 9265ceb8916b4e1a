package isolation

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Scope is what an escalation is about: "global", "node:node-a" (another host that runs jobs),
// "worker:codex", "worker:codex@ann" (the runs of that kind for one tenant),
// "workspace:/home/ann/shop" or "trigger:nightly", which holds no run, but what the trigger would
// submit. A worker or a workspace may be so on one other host alone: "node:node-a/worker:codex".
type Scope string

// Run is what scopes are compared with.
type Run struct {
	Kind      job.WorkerKind
	Tenant    job.Tenant
	Workspace string // absolute, its symbolic links resolved; "" if it has none
	Node      string // the other host that it would run on; "": the scheduler's own, or not known yet
}

// Global is everything.
const Global Scope = "global"

const (
	workerScope    = "worker:"
	workspaceScope = "workspace:"
	triggerScope   = "trigger:"
	nodeScope      = "node:"
	tenantMark     = "@" // which is in no name of a kind or a tenant
	onHost         = "/" // which is in no name of a node
)

// WorkerScope is one kind of worker.
func WorkerScope(kind job.WorkerKind) Scope { return Scope(workerScope + string(kind)) }

// TenantScope is one kind of worker for one tenant.
func TenantScope(kind job.WorkerKind, t job.Tenant) Scope {
	return Scope(workerScope + string(kind) + tenantMark + string(t))
}

// WorkspaceScope is one folder, with all below and above it. The path is
// absolute, its symbolic links resolved.
func WorkspaceScope(path string) Scope { return Scope(workspaceScope + filepath.Clean(path)) }

// TriggerScope is what a trigger submits.
func TriggerScope(name string) Scope { return Scope(triggerScope + name) }

// NodeScope is what runs on another host.
func NodeScope(name string) Scope { return Scope(nodeScope + name) }

// On returns what of everything, of a worker or of a workspace is on another host; false: the scope
// is none of these.
func (s Scope) On(name string) (Scope, bool) {
	if s == Global {
		return NodeScope(name), true
	}
	_, _, worker := s.Worker()
	_, workspace := s.Workspace()
	return NodeScope(name) + onHost + s, worker || workspace
}

// ParseScope reads what a person or a file wrote.
func ParseScope(text string) (Scope, error) {
	if text == string(Global) {
		return Global, nil
	}
	if name, ok := strings.CutPrefix(text, workerScope); ok {
		kind, t, limited := strings.Cut(name, tenantMark)
		switch {
		case kind == "":
		case !limited:
			return WorkerScope(job.WorkerKind(kind)), nil
		case job.ValidTenant(job.Tenant(t)) == nil:
			return TenantScope(job.WorkerKind(kind), job.Tenant(t)), nil
		}
	}
	if path, ok := strings.CutPrefix(text, workspaceScope); ok && filepath.IsAbs(path) {
		return WorkspaceScope(path), nil
	}
	if name, ok := strings.CutPrefix(text, triggerScope); ok && name != "" && job.OneLine(name) && !strings.ContainsAny(name, " /") {
		return TriggerScope(name), nil
	}
	if rest, ok := strings.CutPrefix(text, nodeScope); ok {
		name, part, partly := strings.Cut(rest, onHost)
		what := Global
		if partly {
			what, _ = ParseScope(part) // no scope is one of no host
		}
		if s, ok := what.On(name); ok && partly == (what != Global) && name != "" && job.OneLine(name) && !strings.Contains(name, " ") {
			return s, nil
		}
	}
	return "", fmt.Errorf("%q is no scope, want global, node:NAME, worker:KIND, worker:KIND@TENANT, workspace:/absolute/path, "+
		"node:NAME/ before a worker or a workspace, or trigger:NAME", text)
}

// Worker returns the kind of a worker's scope, and the tenant that it is limited
// to, "" if it is not.
func (s Scope) Worker() (job.WorkerKind, job.Tenant, bool) {
	name, ok := strings.CutPrefix(string(s), workerScope)
	kind, t, _ := strings.Cut(name, tenantMark)
	return job.WorkerKind(kind), job.Tenant(t), ok
}

// Workspace returns the folder of a workspace's scope.
func (s Scope) Workspace() (string, bool) { return strings.CutPrefix(string(s), workspaceScope) }

// Trigger returns the name of a trigger's scope.
func (s Scope) Trigger() (string, bool) { return strings.CutPrefix(string(s), triggerScope) }

// Node returns the name of a node's scope.
func (s Scope) Node() (string, bool) {
	name, what, ok := s.Host()
	return name, ok && what == Global
}

// Host returns the name of the only other host that the scope is about, and what it is there: Global
// is all of it. Of a scope of no host in particular, what is the scope itself.
func (s Scope) Host() (name string, what Scope, ok bool) {
	rest, ok := strings.CutPrefix(string(s), nodeScope)
	if !ok {
		return "", s, false
	}
	name, part, partly := strings.Cut(rest, onHost)
	if !partly {
		return name, Global, true
	}
	return name, Scope(part), true
}

// Touches reports whether the scope holds r.
func (s Scope) Touches(r Run) bool {
	if s == Global {
		return true
	}
	if name, what, ok := s.Host(); ok {
		return name == r.Node && what.Touches(r)
	}
	if kind, t, ok := s.Worker(); ok {
		return kind == r.Kind && (t == "" || t == r.Tenant)
	}
	locked, ok := s.Workspace()
	return ok && r.Workspace != "" && (within(r.Workspace, locked) || within(locked, r.Workspace))
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
