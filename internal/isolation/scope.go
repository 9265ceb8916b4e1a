package isolation

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Scope is what an escalation is about: "global", "worker:codex" or
// "workspace:/home/ann/shop".
type Scope string

// Global is everything.
const Global Scope = "global"

const (
	workerScope    = "worker:"
	workspaceScope = "workspace:"
)

// WorkerScope is one kind of worker.
func WorkerScope(kind job.WorkerKind) Scope { return Scope(workerScope + string(kind)) }

// WorkspaceScope is one folder, with all below and above it. The path is
// absolute, its symbolic links resolved.
func WorkspaceScope(path string) Scope { return Scope(workspaceScope + filepath.Clean(path)) }

// ParseScope reads what a person or a file wrote.
func ParseScope(text string) (Scope, error) {
	if text == string(Global) {
		return Global, nil
	}
	if kind, ok := strings.CutPrefix(text, workerScope); ok && kind != "" {
		return WorkerScope(job.WorkerKind(kind)), nil
	}
	if path, ok := strings.CutPrefix(text, workspaceScope); ok && filepath.IsAbs(path) {
		return WorkspaceScope(path), nil
	}
	return "", fmt.Errorf("%q is no scope, want global, worker:KIND or workspace:/absolute/path", text)
}

// Worker returns the kind of a worker's scope.
func (s Scope) Worker() (job.WorkerKind, bool) {
	kind, ok := strings.CutPrefix(string(s), workerScope)
	return job.WorkerKind(kind), ok
}

// Workspace returns the folder of a workspace's scope.
func (s Scope) Workspace() (string, bool) { return strings.CutPrefix(string(s), workspaceScope) }

// Touches reports whether the scope holds a run of kind in workspace, "" if it
// has none.
func (s Scope) Touches(kind job.WorkerKind, workspace string) bool {
	if s == Global {
		return true
	}
	if k, ok := s.Worker(); ok {
		return k == kind
	}
	locked, ok := s.Workspace()
	return ok && workspace != "" && (within(workspace, locked) || within(locked, workspace))
}

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
