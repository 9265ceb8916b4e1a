package agentcore

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// confinement holds the processes of one run to what its job was granted.
type confinement struct {
	held Held
	home string // HOME of its processes
	seen *denials
}

// confine returns what holds the run; nil if nothing does. A job that asks for less than the host allows, or for what the
// host cannot do, does not run.
func (e *execution) confine(ws *workspace.Workspace, dir string) (*confinement, error) {
	settings, asked := &e.settings.Sandbox, e.submit.Spec.Sandbox.Level
	level := cmp.Or(asked, settings.Level, job.SandboxNone)
	least := cmp.Or(settings.Least, settings.Level, job.SandboxNone)
	if level.Weaker(least) {
		return nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("the job asks for sandbox level %s, and this host allows no less than %s", level, least),
			Hint: "ask for that or more, or have sandbox.least lowered in the configuration"}
	}
	if level == job.SandboxNone {
		return nil, nil
	}
	c := &confinement{
		held: Held{
			Level: sandbox.Level(level), Spec: &e.submit.Spec, Settings: *settings,
			Workspace: ws.Dir, Own: []string{e.temp, filepath.Join(dir, "scratch")},
		},
		home: e.session.dir.Home(e.submit.Job, e.submit.Choice.Worker),
	}
	c.held.Own = append(c.held.Own, c.home)
	c.seen = newDenials(e.emit, e.stop)
	return c, nil
}

// policy returns what the process of a command may do.
func (c *confinement) policy(cmd *worker.Command) *sandbox.Policy {
	held := c.held
	held.Tools = slices.Concat(held.Tools, cmd.Read)
	held.Own = slices.Concat(held.Own, cmd.Write)
	p := held.Policy()
	p.Denied = c.seen.sandbox
	return &p
}

// sandboxOf is policy for a Runner; nil of a run that nothing holds.
func (c *confinement) sandboxOf() func(*worker.Command) *sandbox.Policy {
	if c == nil {
		return nil
	}
	return c.policy
}

// environ returns the environment of the run's processes: what of the user's leads into the user's folders and to the
// user's agents is replaced or left out.
func (c *confinement) environ(env []string, temp string) []string {
	if c == nil {
		return env
	}
	env = worker.UnsetEnv(env, "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
	return worker.SetEnv(env, "HOME", c.home)
}

// holding is what is recorded of how the run was held.
func (c *confinement) holding() *job.Holding {
	if c == nil {
		return nil
	}
	return &job.Holding{Level: job.SandboxLevel(c.held.Level), Denied: c.seen.count()}
}
