package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// topUp adds credits to a tenant's balance and says what is left. The key is of this
// command if none is given: what was sent and not answered is sent again, and counts once.
func topUp(ctx context.Context, con *console, p *peer, in api.TopUp, key string) error {
	key = cmp.Or(key, uuid.NewString())
	after, err := change(ctx, p, func() (api.Balance, error) { return p.TopUp(ctx, in, client.WithKey(key)) })
	if refused, ok := errors.AsType[*api.Problem](err); ok && refused.Status != http.StatusConflict { // that is what the balance is, and no mistake
		err = mends(err)
	}
	if err != nil {
		return err
	}
	return con.print(after, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "credits of %s: %d left\n", in.Tenant, after.Left)
		return err
	})
}

// dropBalance ends a tenant's balance. It reports whether there was one.
func dropBalance(ctx context.Context, p *peer, t job.Tenant) (had bool, err error) {
	_, err = change(ctx, p, func() (api.Balance, error) { return p.DropBalance(ctx, api.DropBalance{Tenant: t, By: userName()}) })
	if isNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func printBalances(w io.Writer, g *grantList) error {
	if len(g.Grants.Grants) > 0 {
		fmt.Fprintln(w)
	}
	return table(w, "TENANT\tCREDITS LEFT\tADDED\tTAKEN\tNOTE", func(w io.Writer) {
		for _, b := range g.Balances {
			note := ""
			if b.Left < g.run {
				note = "used up"
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\n", b.Tenant, b.Left, b.Added, b.Taken, note)
		}
	})
}

func grantShowCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show TENANT", Short: "Show what a tenant's credits were added and taken for", Args: cobra.ExactArgs(1),
		Long: `Show what was added to a tenant's credits and what runs took, the newest first. What a run took
is forgotten with jobs of its age.`,
		Example: "  scheduler grant show website\n  scheduler grant show website -n 1000 --json",
	}
	limit := cmd.Flags().IntP("number", "n", 50, "at most `N` entries")
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (list api.Credits, err error) {
		if *limit < 1 {
			return list, usage(fmt.Errorf("invalid -n %d: use 1 or more", *limit))
		}
		owner, err := ownerOf(args[0])
		if err != nil {
			return list, usage(err)
		}
		if list, err = creditsOf(ctx, p, owner.Tenant, *limit); err == nil && len(list.Credits) == 0 {
			err = fmt.Errorf("%s never had credits; `scheduler grant %s --credits N` adds some", owner.Tenant, owner.Tenant)
		}
		return list, err
	}, func(w io.Writer, list api.Credits) error {
		return printCredits(w, list.Credits)
	})
}

// creditsOf returns the newest entries of a history, at most limit.
func creditsOf(ctx context.Context, r *peer, t job.Tenant, limit int) (api.Credits, error) {
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
