package agentcore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"

	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/job"
)

// gitHeld reports whether git is held when it reads what the run's agent wrote. At every level that holds the run Landlock
// does it, if the host has it: a namespace for each of a dozen commands would cost more than the run's own.
func (e *execution) gitHeld() bool {
	return sandboxLevel(&e.submit.Spec, &e.settings.Sandbox) != job.SandboxNone && !e.reports() && e.session.can.Standard == nil
}

// confinedGit runs a git command that reads what an agent wrote, with no more than it needs.
func (s *session) confinedGit(ctx context.Context, cmd *exec.Cmd, read, write []string) error {
	// What is not there is left out, and what may be written need not be read besides. A command needs neither the network
	// nor to be asked about.
	write = slices.DeleteFunc(slices.Clone(write), missing)
	read = slices.DeleteFunc(slices.Clone(read), func(path string) bool { return belowAny(path, write) })
	policy := sandbox.Policy{
		Level: sandbox.Standard, NoNotifier: true, Hide: sandbox.SystemSecrets(),
		Read: slices.Concat(sandbox.SystemFiles(), programFiles(cmd.Path), read), Write: write,
	}
	held, err := policy.Prepare(cmd.Path, cmd.ExtraFiles)
	if err != nil {
		return err
	}
	cmd.Path, cmd.ExtraFiles = held.Path, held.Extra
	err = s.host.Run(ctx, cmd)
	if why := held.Started(ctx); why != nil && err != nil && ctx.Err() == nil {
		err = why
	}
	return errors.Join(err, held.Close())
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}
