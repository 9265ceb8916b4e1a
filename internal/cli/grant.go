package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/audit"
	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (m *Main) grantCommand() *cobra.Command {
	var tokens, credits int64
	var cost float64
	var wall, window string
	var dead, alive, asJSON bool
	cmd := &cobra.Command{
		Use: "grant TENANT[/AGENT]", Short: "Say what a tenant or an agent may use", Args: cobra.ExactArgs(1),
		Long: `Say what a tenant, or one agent of it, may use. As soon as it has used as much as a bound,
its jobs stay in the queue until the bound is raised, or what was used has left the window.
What the command does not name stays as it is; 0 lifts a bound. What is dead cannot submit
jobs any more; what it has submitted goes on.

Lengths of time are written 90s, 15m, 24h or 7d. Without a window, use counts for ever.

--credits adds to what a tenant has. From its first credits on, each of its runs takes some
(credits in the configuration: one, if nothing else is said), and its jobs wait while there
are too few. --credits=-5 takes 5 back. scheduler grant show tells what they went for.`,
		Example: "  scheduler grant website --cost 20 --window 24h\n  scheduler grant website --credits 100\n  scheduler grant website/agent-7 --tokens 500000\n  scheduler grant website/agent-7 --dead\n  scheduler grant ls\n  scheduler grant rm website",
		RunE: func(cmd *cobra.Command, args []string) error {
			owner, err := ownerOf(args[0])
			if err != nil {
				return usage(err)
			}
			g, err := m.grantOf(cmd.Context(), owner)
			if err != nil {
				return err
			}
			set := cmd.Flags().Changed
			bounds := set("tokens") || set("cost") || set("wall") || set("window") || dead || alive
			if set("credits") {
				op := queue.TopUp{Tenant: owner.Tenant, Credits: credits, By: userName(), Now: utcNow()}
				err := op.Validate()
				switch {
				case err != nil:
				case owner.Agent != "":
					err = fmt.Errorf("credits are of a tenant as a whole, and %s is an agent", owner)
				case bounds:
					err = errors.New("--credits adds to a balance and goes with no bound; give them one after the other")
				}
				if err != nil {
					return usage(err)
				}
				return m.topUp(cmd.Context(), op, asJSON)
			}
			if !bounds {
				return usage(errors.New("nothing was granted"), "name a bound, e.g. --cost 20, or --dead; `scheduler grant ls` lists what there is")
			}
			if set("tokens") {
				g.Tokens = tokens
			}
			if set("cost") {
				g.CostUSD = cost
			}
			for _, x := range []struct {
				name, text string
				field      *job.Duration
			}{{"wall", wall, &g.Wall}, {"window", window, &g.Window}} {
				if !set(x.name) {
					continue
				}
				span, err := spanOf(x.text)
				if err != nil {
					return usage(fmt.Errorf("--%s %q is no length of time, want e.g. 90s, 15m, 24h or 7d", x.name, x.text))
				}
				*x.field = job.Duration(span)
			}
			g.Dead = (g.Dead || dead) && !alive
			if err := g.Validate(); err != nil {
				return usage(err)
			}
			if err := m.setGrant(cmd.Context(), g); err != nil || !asJSON {
				return err
			}
			return failure(writeJSON(m.stdout, g))
		},
	}
	f := cmd.Flags()
	f.Int64Var(&tokens, "tokens", 0, "at most `N` tokens, input and output")
	f.Float64Var(&cost, "cost", 0, "at most so many US `DOLLARS`")
	f.StringVar(&wall, "wall", "", "at most this much `TIME` of attempts, added up")
	f.StringVar(&window, "window", "", "count what was used within this `TIME`")
	f.BoolVar(&dead, "dead", false, "it cannot submit jobs any more")
	f.BoolVar(&alive, "alive", false, "it can again")
	f.Int64Var(&credits, "credits", 0, "add `N` credits to what the tenant has")
	f.BoolVar(&asJSON, "json", false, "print the whole grant, or the balance, as JSON")
	cmd.MarkFlagsMutuallyExclusive("dead", "alive")
	cmd.AddCommand(m.grantLsCommand(), m.grantShowCommand(), m.grantRmCommand())
	return cmd
}

// ownerOf reads TENANT or TENANT/AGENT.
func ownerOf(text string) (queue.Owner, error) {
	tenant, agent, has := strings.Cut(text, "/")
	if tenant == "" || has && agent == "" {
		return queue.Owner{}, fmt.Errorf("%q names no owner, want TENANT or TENANT/AGENT", text)
	}
	return queue.Owner{Tenant: job.Tenant(tenant), Agent: job.AgentID(agent)}, nil
}

func ownerText(o queue.Owner) string { return dash(o.String()) }

// grantOf returns the grant of an owner, an empty one if it has none or if
// there is no store yet.
func (m *Main) grantOf(ctx context.Context, owner queue.Owner) (queue.Grant, error) {
	list, err := m.grants(ctx)
	for _, g := range list {
		if g.Owner == owner {
			return g, nil
		}
	}
	return queue.Grant{Owner: owner}, err
}

func (m *Main) grants(ctx context.Context) ([]queue.Grant, error) {
	_, store, err := m.look(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	list, err := store.Grants(ctx)
	return list, failure(err)
}

// setGrant stores a grant.
func (m *Main) setGrant(ctx context.Context, g queue.Grant) error {
	_, err := m.change(ctx, func(c *client.Client) error {
		err := c.SetGrant(ctx, server.GrantOf(&g))
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Status == http.StatusBadRequest {
			return usage(err)
		}
		return err
	}, func(o *owned) error {
		if err := o.store.Apply(ctx, queue.SetGrant{Grant: g}); err != nil {
			return err
		}
		m.did(ctx, o.dir, audit.Entry{Action: deedGrant, Target: g.Owner.String(), Detail: g})
		return nil
	})
	return err
}

func (m *Main) grantLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List what was granted, and how much of it was used", Args: cobra.NoArgs,
		Long:    "List what tenants and agents may use, how much of it they have used within its window, and the credits of tenants.",
		Example: "  scheduler grant ls\n  scheduler grant ls --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			list, err := store.Grants(cmd.Context())
			if err != nil {
				return failure(err)
			}
			balances, err := server.BalancesOf(cmd.Context(), store)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, api.Grants{Grants: server.GrantsOf(list), Balances: balances.Balances}))
			}
			if len(list)+len(balances.Balances) == 0 {
				fmt.Fprintln(m.stdout, "nobody is bounded")
				return nil
			}
			used := make([]queue.Account, len(list))
			for i, g := range list {
				f := queue.AccountFilter{Tenant: g.Tenant, Agent: g.Agent}
				if g.Window > 0 {
					f.Since = time.Now().Add(-g.Window.Std())
				}
				accounts, err := store.Accounts(cmd.Context(), f)
				if err != nil {
					return failure(err)
				}
				used[i] = accounts[0]
			}
			if err := printGrants(m.out(), list, used); err != nil || len(balances.Balances) == 0 {
				return failure(err)
			}
			return failure(printBalances(m.out(), &balances, len(list) > 0))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printGrants(w io.Writer, list []queue.Grant, used []queue.Account) error {
	if len(list) == 0 {
		return nil
	}
	return table(w, "OWNER\tTOKENS\tCOST\tTIME\tWINDOW\tNOTE", func(w io.Writer) {
		for i := range list {
			g, u := &list[i], &used[i]
			tokens, cost, wall, window, note := "-", "-", "-", "-", ""
			full := g.UsedUp(u)
			if g.Tokens > 0 {
				tokens = fmt.Sprintf("%d of %d", u.Usage.Tokens(), g.Tokens)
			}
			if g.CostUSD > 0 {
				cost = fmt.Sprintf("$%.4f of $%.4f", u.Usage.CostUSD, g.CostUSD)
			}
			if g.Wall > 0 {
				wall = fmt.Sprintf("%s of %s", u.Wall.Std().Round(time.Second), g.Wall)
			}
			if g.Window > 0 {
				window = g.Window.String()
			}
			switch {
			case g.Dead && full:
				note = "dead, used up"
			case g.Dead:
				note = "dead"
			case full:
				note = "used up"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", ownerText(g.Owner), tokens, cost, wall, window, note)
		}
	})
}

func (m *Main) grantRmCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rm TENANT[/AGENT]...", Short: "Lift all bounds of a tenant or an agent", Args: cobra.MinimumNArgs(1),
		Long: `Lift all bounds of tenants or agents: they may use what they want, and submit jobs again if
they were dead. Credits that a tenant has left are lost.`,
		Example: "  scheduler grant rm website/agent-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := m.grants(cmd.Context())
			if err != nil {
				return err
			}
			var errs []error
			lifted := api.Grants{Grants: []api.Grant{}}
			for _, arg := range args {
				owner, err := ownerOf(arg)
				if err != nil {
					return usage(err)
				}
				at := slices.IndexFunc(list, func(g queue.Grant) bool { return g.Owner == owner })
				dropped := false
				if owner.Agent == "" {
					if dropped, err = m.dropBalance(cmd.Context(), owner.Tenant); err != nil {
						errs = append(errs, err)
						continue
					}
				}
				switch {
				case at < 0 && dropped:
					continue
				case at < 0:
					errs = append(errs, failure(fmt.Errorf("%s has no grant; `scheduler grant ls` lists them", arg)))
					continue
				}
				if err := m.setGrant(cmd.Context(), queue.Grant{Owner: owner}); err != nil {
					errs = append(errs, err)
					continue
				}
				lifted.Grants = append(lifted.Grants, server.GrantOf(&list[at]))
			}
			if asJSON {
				errs = append(errs, failure(writeJSON(m.stdout, lifted)))
			}
			return joined(errs)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the grants that were lifted as JSON")
	return cmd
}
