package agentcore

import (
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Held is what a run's policy is made of: what its job asks for, what the host allows, and where the run's own files lie.
// All paths are absolute.
type Held struct {
	Level    sandbox.Level
	Spec     *job.Spec
	Settings ipc.Sandbox

	Workspace []string          // the folder that it works in, which it may change if its job may edit
	Borrowed  []string          // what the workspace refers to and the run may read, such as git's objects
	Own       []string          // private folders and files of the run, which it may change: its home, its temporary files
	Cache     string            // of its tenant, for toolchains; "" for none
	Programs  []string          // of the worker's configured command, which may be a program that runs another: absolute paths count
	Tools     []string          // toolchains, and the folders of the worker's program, which it may read
	Hidden    []string          // what no run sees, whatever else is granted
	State     string            // the state directory, of which a run sees nothing but what of the above lies in it
	Ports     []uint16          // of loopback that it may connect to
	Redirect  map[uint16]uint16 // of loopback, by which others the core serves them
}

// For returns what the policy of the process that a command starts is made of. user finds variables of the user's
// environment.
func (h Held) For(cmd *worker.Command, user func(name string) string) Held {
	h.Tools = slices.Concat(h.Tools, Toolchains(user("HOME"), user, append(slices.Concat(slices.DeleteFunc(slices.Clone(h.Programs), relative), cmd.Programs), cmd.Path)...), cmd.Read)
	h.Own = slices.Concat(h.Own, cmd.Write)
	return h
}

func relative(path string) bool { return !filepath.IsAbs(path) }

// Policy returns what the run may do. The strictest of configuration and job wins: a list of the job's narrows what the
// configuration grants, and what either hides is hidden.
func (h *Held) Policy() sandbox.Policy {
	read := h.Settings.Read
	if len(h.Spec.Sandbox.Read) > 0 {
		read = narrowed(slices.Concat(read, h.Settings.Write), h.Spec.Sandbox.Read)
	}
	stateless := func(granted []string) []string {
		return slices.DeleteFunc(slices.Clone(granted), func(path string) bool { return h.State != "" && belowAny(path, []string{h.State}) })
	}
	p := sandbox.Policy{
		Level: h.Level, Ports: h.Ports, Redirect: h.Redirect, FullNetwork: h.Spec.HasFullNetwork(),
		Write: slices.Concat(h.Own, stateless(narrowed(h.Settings.Write, h.Spec.Sandbox.Write))),
		Hide:  slices.Concat(sandbox.SystemSecrets(), h.Hidden, h.Settings.Hide, h.Spec.Sandbox.Hide),
	}
	if h.State != "" {
		p.Hide = append(p.Hide, h.State)
	}
	if h.Cache != "" {
		p.Write = append(p.Write, h.Cache)
	}
	refused := slices.Concat(h.Settings.Hide, h.Spec.Sandbox.Hide)
	hidden := func(path string) bool { return belowAny(path, refused) }
	p.Write = slices.DeleteFunc(p.Write, hidden)
	if h.Spec.Can(job.CanEdit) {
		p.Write = append(p.Write, h.Workspace...)
	}
	// What a run needs to read is no bound on what it may change.
	needed := slices.DeleteFunc(slices.Concat(sandbox.SystemFiles(), h.Tools, h.Borrowed), func(path string) bool { return h.writes(path, p.Write) })
	p.Read = slices.DeleteFunc(slices.Concat(needed, stateless(read)), hidden)
	if !h.Spec.Can(job.CanEdit) {
		p.Read = append(p.Read, h.Workspace...)
	}
	for _, list := range []*[]string{&p.Read, &p.Write, &p.Hide} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return p
}

// writes reports whether a path is one that the run may change, or lies in one. A folder around the state directory is
// none for what lies in that.
func (h *Held) writes(path string, write []string) bool {
	return slices.ContainsFunc(write, func(dir string) bool {
		return belowAny(path, []string{dir}) && (h.State == "" || !belowAny(path, []string{h.State}) || belowAny(dir, []string{h.State}))
	})
}

// narrowed returns what of the asked paths lies within those that are allowed; all that are allowed if nothing is asked
// for.
func narrowed(allowed, asked []string) []string {
	if len(asked) == 0 {
		return allowed
	}
	var both []string
	for _, path := range asked {
		if belowAny(path, allowed) {
			both = append(both, path)
		}
	}
	return both
}

// belowAny reports whether a clean absolute path is one of dirs or lies in one.
func belowAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return path == dir || below(dir, path) })
}
