package agentcore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestLevel asks hosts of all kinds for levels: none is less than asked for or allowed, and a host that cannot says so.
func TestLevel(t *testing.T) {
	missing := errors.New("not here")
	full, standard, nothing := sandbox.Host{}, sandbox.Host{Bubblewrap: missing}, sandbox.Host{Bubblewrap: missing, Standard: missing}
	strongest := ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxStandard}
	lower := ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxNone}
	firm := ipc.Sandbox{Level: job.SandboxStrongest, Least: job.SandboxStrict}
	off := ipc.Sandbox{Level: job.SandboxNone, Least: job.SandboxNone}
	for _, test := range []struct {
		name     string
		host     sandbox.Host
		settings ipc.Sandbox
		asked    job.SandboxLevel
		want     sandbox.Level
		cannot   string // the beginning of what Confine says; "" if it can
	}{
		{"strongest", full, strongest, "", sandbox.Strict, ""},
		{"strongest without strict", standard, strongest, "", sandbox.Standard, ""},
		{"strongest without any", nothing, strongest, "", sandbox.Standard, "this host cannot hold a run at sandbox level standard: not here"},
		{"strongest with consent to none", nothing, lower, "", sandbox.None, ""},
		{"no less than strict", standard, firm, "", sandbox.Strict, "this host cannot hold a run at sandbox level strict: not here"},
		{"none without consent", full, strongest, job.SandboxNone, "", "the job asks for sandbox level none, and this host allows no less than standard"},
		{"none with consent", full, lower, job.SandboxNone, sandbox.None, ""},
		{"less than the strongest", full, strongest, job.SandboxStandard, sandbox.Standard, ""},
		{"more than there is", standard, strongest, job.SandboxStrict, sandbox.Strict, "this host cannot hold a run at sandbox level strict: not here"},
		{"more than none", full, off, job.SandboxStandard, sandbox.Standard, ""},
		{"off", full, off, "", sandbox.None, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			of := agentcore.Confining{Spec: &job.Spec{Sandbox: job.Sandbox{Level: test.asked}}, Settings: test.settings, Host: test.host}
			got, err := of.Level()
			if got != test.want {
				t.Errorf("level %q, want %q", got, test.want)
			}
			if test.cannot == "" {
				return
			}
			if err == nil {
				_, err = agentcore.Confine(t.Context(), of)
			}
			failure, ok := errors.AsType[*worker.Failure](err)
			if !ok || failure.Class != job.Config || !strings.HasPrefix(failure.Message, test.cannot) || failure.Hint == "" {
				t.Errorf("%v, want a failure of class CONFIG with a hint that begins with %q", err, test.cannot)
			}
		})
	}
}
