package workspace

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/job"
)

// Reapply applies what an earlier attempt of the same job changed, on another host, to a workspace that was just made. It
// is the job's own work: the start stays what it is. The error is a *PatchesError if it does not fit, and the workspace
// is then to be made anew.
func (m *Manager) Reapply(ctx context.Context, ws *Workspace, p job.Patch) error {
	held, err := m.lockJob(ctx, ws.Job)
	if err != nil {
		return err
	}
	defer held.release()
	rec, err := m.readyRecord(ws.Job)
	if err == nil {
		err = m.ensureBase(ctx, rec, held)
	}
	if err == nil {
		err = m.applyPatches(ctx, rec, Request{Patches: []job.Patch{p}}, held, func(job.Name, []string) error { return nil })
	}
	if err != nil {
		return fmt.Errorf("apply what an earlier attempt of job %s changed: %w", ws.Job, err)
	}
	return nil
}
