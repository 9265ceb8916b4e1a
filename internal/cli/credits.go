package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// topUp adds credits to a tenant's balance and says what is left.
func (m *Main) topUp(ctx context.Context, op queue.TopUp, asJSON bool) error {
	var after api.Balance
	_, err := m.change(ctx, func(c *client.Client) (err error) {
		after, err = c.TopUp(ctx, api.TopUp{Tenant: op.Tenant, Credits: op.Credits, By: op.By})
		return err
	}, func(o *owned) error {
		err := o.store.Apply(ctx, op)
		if errors.Is(err, queue.ErrIllegalTransition) {
			return failure(errors.Unwrap(err))
		}
		if err != nil {
			return err
		}
		m.did(ctx, o.dir, audit.Entry{Action: deedTopUp, Target: string(op.Tenant), Detail: api.TopUp{Tenant: op.Tenant, Credits: op.Credits, By: op.By}})
		list, err := o.store.Balances(ctx)
		if i := slices.IndexFunc(list, func(b queue.Balance) bool { return b.Tenant == op.Tenant }); i >= 0 {
			after = api.Balance{Tenant: op.Tenant, Left: list[i].Left(), Added: list[i].Added, Taken: list[i].Taken}
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case asJSON:
		return failure(writeJSON(m.stdout, after))
	}
	fmt.Fprintf(m.stdout, "credits of %s: %d left\n", op.Tenant, after.Left)
	return nil
}

// dropBalance ends a tenant's balance. It reports whether there was one.
func (m *Main) dropBalance(ctx context.Context, t job.Tenant) (had bool, err error) {
	_, err = m.change(ctx, func(c *client.Client) error {
		_, err := c.DropBalance(ctx, api.DropBalance{Tenant: t, By: userName()})
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Status == http.StatusNotFound {
			return nil
		}
		had = err == nil
		return err
	}, func(o *owned) error {
		err := o.store.Apply(ctx, queue.DropBalance{Tenant: t, By: userName(), Now: utcNow()})
		if errors.Is(err, queue.ErrNotFound) {
			return nil
		}
		if had = err == nil; had {
			m.did(ctx, o.dir, audit.Entry{Action: deedDropBalance, Target: string(t)})
		}
		return err
	})
	return had, err
}

func printBalances(w io.Writer, list *api.Balances, apart bool) error {
	if apart {
		fmt.Fprintln(w)
	}
	return table(w, "TENANT\tCREDITS LEFT\tADDED\tTAKEN\tNOTE", func(w io.Writer) {
		for _, b := range list.Balances {
			note := ""
			if b.Left < list.Run {
				note = "used up"
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", b.Tenant, b.Left, b.Added, b.Taken, note)
		}
	})
}

func (m *Main) grantShowCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := &cobra.Command{
		Use: "show TENANT", Short: "Show what a tenant's credits were added and taken for", Args: cobra.ExactArgs(1),
		Long: `Show what was added to a tenant's credits and what runs took, the newest first. What a run took
is forgotten with jobs of its age.`,
		Example: "  scheduler grant show website\n  scheduler grant show website -n 1000 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usage(fmt.Errorf("-n is %d, want 1 or more", limit))
			}
			owner, err := ownerOf(args[0])
			if err != nil {
				return usage(err)
			}
			return m.read(func(r *reader) error {
				list, err := creditsOf(cmd.Context(), r, owner.Tenant, limit)
				switch {
				case err != nil:
					return err
				case asJSON:
					return failure(writeJSON(m.stdout, list))
				case len(list.Credits) == 0:
					return failure(fmt.Errorf("%s never had credits; `scheduler grant %s --credits N` adds some", owner.Tenant, owner.Tenant))
				}
				return failure(printCredits(m.out(), list.Credits))
			})
		},
	}
	cmd.Flags().IntVarP(&limit, "number", "n", 50, "at most `N` entries")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// creditsOf returns the newest entries of a history, at most limit.
func creditsOf(ctx context.Context, r *reader, t job.Tenant, limit int) (api.Credits, error) {
	const page = 1000
	all := api.Credits{Credits: []api.Credit{}}
	for left := limit; left > 0; left = limit - len(all.Credits) {
		part, err := r.CreditHistory(ctx, t, all.Next, min(left, page))
		if err != nil {
			return all, err
		}
		all.Credits, all.Next = append(all.Credits, part.Credits...), part.Next
		if part.Next == "" {
			break
		}
	}
	return all, nil
}

func printCredits(w io.Writer, list []api.Credit) error {
	return table(w, "TIME\tCREDITS\tFOR", func(w io.Writer) {
		for _, c := range list {
			what := "by " + dash(c.By)
			if c.Job != "" {
				what = fmt.Sprintf("job %s, attempt %d", c.Job, c.Attempt)
			}
			if c.Agent != "" {
				what += ", agent " + string(c.Agent)
			}
			fmt.Fprintf(w, "%s\t%+d\t%s\n", c.At.Local().Format(time.DateTime), c.Credits, what)
		}
	})
}
