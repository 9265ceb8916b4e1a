package agentcli

import (
	"context"
	"time"

	"github.com/agentsched/agentsched/job"
)

// EnsureTelling is Ensure that tells how far it is as often as that.
func (c Catalog) EnsureTelling(ctx context.Context, dir string, kinds []job.WorkerKind, progress func(line string), every time.Duration) (Installed, error) {
	return c.ensure(ctx, dir, kinds, progress, every)
}
