package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// place is where a scheduler itself stands: what holds for it as well tells nothing
// about who asks it. A scheduler that an agent's run has started is so asked by the
// rest of that run.
type place struct {
	pid     int
	tag     string   // job.RunTagVariable
	cgroups []string // paths, of all hierarchies
	args    func(pid int) []string
}

func ownPlace() place {
	return place{pid: os.Getpid(), tag: os.Getenv(job.RunTagVariable), cgroups: proc.OwnCgroups(), args: proc.Args}
}

// origin judges a process that asks at the socket.
func (e *engine) origin(p proc.Proc) access.Origin {
	from, err := e.host.Origin(p)
	switch {
	case errors.Is(err, proc.ErrGone):
		return access.Origin{Run: "it has ended, so that nobody can tell what it was"}
	case err != nil:
		return access.Origin{Run: err.Error()}
	}
	if why := runOf(&from, string(e.state.dir.Instance()), ownPlace()); why != "" {
		return access.Origin{Run: why}
	}
	return access.Origin{Before: func() bool { return isOurs(p.Pid) }}
}

// runOf returns why a process counts as part of an agent's run, or "" if it does
// not.
//
// A process cannot choose whom it descends from: one whose parent has ended becomes
// a child of its core, or of the scheduler if that has ended, too. What a hook or a
// trigger has started descends from the scheduler by that command and is let in;
// anything else below the scheduler is not. Where the scheduler is the first process
// of a container it is given everybody's orphans, so that these tell nothing.
//
// The mark, the cgroup and the tag are for what has another parent all the same, since
// its core and its scheduler were killed, say. A process can change its tag, and its
// cgroup if its user may, but not its mark; each only ever tells against it.
func runOf(o *proc.Origin, instance string, own place) string {
	switch kind, _, _ := strings.Cut(strings.TrimPrefix(o.Tree, instance+"/"), "/"); {
	case o.Pid == own.pid:
		return ""
	case kind == "core":
		return "it descends from a core"
	case o.Marked:
		return "it has the mark that a core gives all its descendants (a hard limit on file locks)"
	case !o.Below:
	case kind == "hook" || kind == "trigger":
		return ""
	case o.Tree != "":
		return "it descends from " + o.Tree + " of the scheduler"
	case o.Inherited || own.pid == 1:
	default:
		return "it descends from the scheduler, and not by a hook"
	}
	for i := range o.Above {
		if isCore(&o.Above[i], own.args) {
			return fmt.Sprintf("it descends from the core with process id %d", o.Above[i].Pid)
		}
	}
	if o.Tag != "" && o.Tag != own.tag {
		return fmt.Sprintf("its environment has the tag %q", o.Tag)
	}
	for _, path := range o.Cgroups {
		if group := runGroup(path); group != "" && !slices.ContainsFunc(own.cgroups, func(p string) bool { return within(p, group) }) {
			return fmt.Sprintf("it is in the cgroup %q", group)
		}
	}
	return ""
}

// runsGroup is the name of the cgroup that holds the runs of a state directory.
var runsGroup = regexp.MustCompile(`^agentsched-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// runGroup returns the beginning of a cgroup's path that is the cgroup of a run of
// whatever state directory, "" if it is in none.
func runGroup(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		if runsGroup.MatchString(parts[i]) && i+1 < len(parts) {
			return strings.Join(parts[:i+2], "/")
		}
	}
	return ""
}

func within(path, group string) bool { return path == group || strings.HasPrefix(path, group+"/") }

// isCore reports whether a process is the core of whichever scheduler: it goes by
// the name that a scheduler gives its cores, or is a core of the version before.
func isCore(p *proc.ProcInfo, argsOf func(pid int) []string) bool {
	args := argsOf(p.Pid)
	if len(args) > 0 && strings.HasPrefix(args[0], proc.CoreName("")) {
		return true
	}
	switch {
	case p.Comm == coreCommand && len(args) == 1:
		return filepath.Base(args[0]) == coreCommand
	case p.Comm == "scheduler" && len(args) == 2:
		return args[1] == coreCommand
	}
	return false
}

// outside returns an error if this command is part of an agent's run, which may not
// change the state directory itself. The scheduler that works on the directory
// judges that; without one, what this process can see of itself does.
func (local *local) outside(ctx context.Context, dir *statedir.Dir) error {
	c := client.New(dir.Socket())
	defer c.Close()
	_, err := c.Status(ctx)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Name() == "run_may_not_ask" {
		return usage(err)
	}
	if err == nil {
		return nil
	}
	return local.outsideAlone(dir)
}

// outsideAlone is outside where no scheduler works on the directory.
func (local *local) outsideAlone(dir *statedir.Dir) error {
	if why := ownRun(local.con.getenv(job.RunTagVariable), string(dir.Instance()), proc.OwnCgroups(), proc.Ancestors(), proc.Args); why != "" {
		return usage(fmt.Errorf("an agent's run may not change the state directory %s: %s", dir.Path(), why), "what is to be done belongs into the job; docs/security.md tells how runs are told from people")
	}
	return nil
}

// ofRun reports whether a tag is an agent's run's, and not that of a hook or a
// trigger. A process of a run is found by the tag in its environment when its core
// and its scheduler have died, so it must not close that to the next scheduler.
func ofRun(tag string) bool {
	_, name, _ := strings.Cut(tag, "/")
	kind, _, _ := strings.Cut(name, "/")
	return tag != "" && kind != "hook" && kind != "trigger"
}

// ownRun returns why a process with this tag, in these cgroups and with these
// ancestors is part of a run of an instance, or "". A run may have a state directory
// of its own, as one that works on this program has, so that the tag of another
// instance is no reason. A process below a core that has no tag hides it.
func ownRun(tag, instance string, cgroups []string, above []proc.ProcInfo, args func(int) []string) string {
	trusted := func(name, separator string) bool {
		return strings.HasPrefix(name, instance+separator+"hook"+separator) || strings.HasPrefix(name, instance+separator+"trigger"+separator)
	}
	if strings.HasPrefix(tag, instance+"/") && !trusted(tag, "/") {
		return fmt.Sprintf("the environment has the tag %q", tag)
	}
	for _, path := range cgroups {
		if group := runGroup(path); strings.Contains(group, "/agentsched-"+instance+"/") && !trusted(filepath.Base(group), "_") {
			return fmt.Sprintf("this process is in the cgroup %q", group)
		}
	}
	for i := range above {
		if tag == "" && isCore(&above[i], args) {
			return fmt.Sprintf("this process descends from the core with process id %d", above[i].Pid)
		}
	}
	return ""
}
