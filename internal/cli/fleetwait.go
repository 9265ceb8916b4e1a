package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/queue"
)

// waitFor calls ask until the database answers it. It returns at once what waiting does not mend, and
// errInterrupted when the scheduler is told to stop.
func (runs *runner) waitFor(ctx context.Context, state *owned, ask func(context.Context) error) error {
	notifier, err := daemon.NewNotifier(nil, state.logs.For(logging.Daemon))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel(nil)
	listening.Go(func() { runs.interrupted(ctx, cancel) })
	said := ""
	attempt := func() error {
		err := ask(ctx)
		if err == nil || !errors.Is(err, queue.ErrUnavailable) || ctx.Err() != nil {
			return backoff.Permanent(err)
		}
		if why := reason(err); why != said {
			state.log.Warn().Err(err).Msg("waiting for the database")
			said = why
		}
		notifier.Waiting("waiting for the database: " + err.Error())
		return err
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(waitAtMost), backoff.WithMaxElapsedTime(0))
	err = backoff.Retry(attempt, backoff.WithContext(wait, ctx))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && said != "":
		state.log.Info().Msg("the database answers")
	}
	return err
}

// waitAtMost is how long a database is left alone that cannot be asked.
const waitAtMost = 2 * time.Second

// reason tells why a database cannot be asked, without what differs from one attempt to the next, such as ports.
func reason(err error) string {
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return said.Code
	}
	if broken, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Sprint(broken.Op, broken.Err)
	}
	return err.Error()
}

// interrupted cancels what is done before this scheduler leads if it is told to stop. The configuration is read when it
// leads.
func (runs *runner) interrupted(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		select {
		case got := <-runs.signals:
			if got == syscall.SIGHUP {
				continue
			}
			if cancel(errInterrupted); !errors.Is(context.Cause(ctx), errInterrupted) {
				select {
				case runs.signals <- got: // it goes on as something else by now, and is to stop as that
				default: // others came meanwhile that say so
				}
			}
			return
		case <-ctx.Done():
			return
		}
	}
}
