package cli

import (
	"errors"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// A node says what its cores can do and may: nothing where it has no sandbox, as on macOS, and nobody has agreed to that.
func TestHolds(t *testing.T) {
	why := errors.New("there is none")
	nothing, landlock, all := sandbox.Host{Standard: why, Bubblewrap: why}, sandbox.Host{Bubblewrap: why}, sandbox.Host{}
	for _, test := range []struct {
		name   string
		host   sandbox.Host
		own    ipc.Sandbox
		level  job.SandboxLevel
		levels []job.SandboxLevel
	}{
		{"no sandbox", nothing, ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxStandard}, job.SandboxStandard, []job.SandboxLevel{}},
		{"no sandbox, with consent", nothing, ipc.Sandbox{Level: job.SandboxNone, Least: job.SandboxNone}, job.SandboxNone, []job.SandboxLevel{job.SandboxNone}},
		{"no sandbox, for those that ask", nothing, ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxNone}, job.SandboxNone, []job.SandboxLevel{job.SandboxNone}},
		{"Landlock", landlock, ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxStandard}, job.SandboxStandard, []job.SandboxLevel{job.SandboxStandard}},
		{"Landlock where strict is asked for", landlock, ipc.Sandbox{Level: job.SandboxStrict}, job.SandboxStrict, []job.SandboxLevel{}},
		{"everything", all, ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxStandard}, job.SandboxStrict, []job.SandboxLevel{job.SandboxStandard, job.SandboxStrict}},
		{"nothing is said", all, ipc.Sandbox{}, job.SandboxNone, job.SandboxLevels()},
	} {
		if level, levels := holds(test.host, &test.own); level != test.level || !slices.Equal(levels, test.levels) || levels == nil {
			t.Errorf("%s: %s and %q, want %s and %q", test.name, level, levels, test.level, test.levels)
		}
	}
}
