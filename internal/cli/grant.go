package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func grantCommand(con *console, at *target) *cobra.Command {
	var to api.Grant
	var credits int64
	var wall, window, key string
	var dead, alive bool
	cmd := &cobra.Command{
		Use: "grant TENANT[/AGENT]", Short: "Set what a tenant or an agent may use", Args: cobra.ExactArgs(1),
		Long: `Set what a tenant, or one agent of it, may use. As soon as it has used as much as a bound,
its jobs stay in the queue until the bound is raised, or what was used has left the window.
Bounds that the command does not name stay as they are; 0 lifts a bound. A dead owner cannot submit
jobs any more; jobs that it has submitted go on.

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
				if set("idempotency-key") && key == "" {
					return usage(errors.New("--idempotency-key is empty: want 1 to 255 printable ASCII characters"))
				}
				return at.do(func(p *peer) error {
					return topUp(cmd.Context(), con, p, api.TopUp{Tenant: op.Tenant, Credits: op.Credits, By: op.By}, key)
				})
			}
			if set("idempotency-key") {
				return usage(errors.New("--idempotency-key goes with --credits: what else is granted is the same when it is granted twice"))
			}
			if !bounds {
				return usage(errors.New("nothing was granted"), "name a bound, e.g. --cost 20, or --dead; `scheduler grant ls` lists what there is")
			}
			return at.do(func(p *peer) error {
				g, _, err := grantOf(cmd.Context(), p, owner)
				if err != nil {
					return err
				}
				if set("tokens") {
					g.Tokens = to.Tokens
				}
				if set("cost") {
					g.CostUSD = to.CostUSD
				}
				for _, x := range []struct {
					name, text string
					field      *job.Duration
				}{{"wall", wall, &g.Wall}, {"window", window, &g.Window}} {
					if set(x.name) {
						if *x.field, err = spanFlag(x.name, x.text); err != nil {
							return err
						}
					}
				}
				g.Dead = (g.Dead || dead) && !alive
				if err := setGrant(cmd.Context(), p, g); err != nil || !con.json {
					return err
				}
				return writeJSON(con.stdout, g)
			})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&to.Tokens, "tokens", 0, "at most `N` tokens, input and output")
	f.Float64Var(&to.CostUSD, "cost", 0, "at most so many US `DOLLARS`")
	f.StringVar(&wall, "wall", "", "at most this much `TIME` of attempts, added up")
	f.StringVar(&window, "window", "", "count what was used within this `TIME`")
	f.BoolVar(&dead, "dead", false, "it cannot submit jobs any more")
	f.BoolVar(&alive, "alive", false, "it can again")
	con.jsonFlag(cmd, "print the whole grant, or the balance, as JSON")
	f.Int64Var(&credits, "credits", 0, "add `N` credits to what the tenant has")
	f.StringVar(&key, "idempotency-key", "", "`KEY` of these credits: given twice, they are added once")
	cmd.MarkFlagsMutuallyExclusive("dead", "alive")
	cmd.AddCommand(grantLsCommand(at), grantShowCommand(at), grantRmCommand(con, at))
	return cmd
}

// ownerOf reads TENANT or TENANT/AGENT.
func ownerOf(text string) (queue.Owner, error) {
	tenant, agent, has := strings.Cut(text, "/")
	if tenant == "" || has && agent == "" {
		return queue.Owner{}, fmt.Errorf("%q names no owner: use TENANT or TENANT/AGENT", text)
	}
	return queue.Owner{Tenant: job.Tenant(tenant), Agent: job.AgentID(agent)}, nil
}

// grantOf returns the grant of an owner, an empty one if it has none.
func grantOf(ctx context.Context, p *peer, owner queue.Owner) (g api.Grant, known bool, err error) {
	list, err := p.Grants(ctx)
	i := slices.IndexFunc(list, func(g api.GrantUse) bool { return g.Tenant == owner.Tenant && g.Agent == owner.Agent })
	if i < 0 {
		return api.Grant{Tenant: owner.Tenant, Agent: owner.Agent}, false, err
	}
	return list[i].Grant, true, nil
}

func setGrant(ctx context.Context, p *peer, g api.Grant) error {
	bounds := queue.Grant{Owner: queue.Owner{Tenant: g.Tenant, Agent: g.Agent}, Dead: g.Dead, Tokens: g.Tokens, CostUSD: g.CostUSD, Wall: g.Wall, Window: g.Window}
	if err := bounds.Validate(); err != nil {
		return usage(err)
	}
	_, err := change(ctx, p, func() (struct{}, error) { return struct{}{}, p.SetGrant(ctx, g) })
	return mends(err)
}

// grantList is what `grant ls` shows.
type grantList struct {
	api.Grants
	run int64 // what a run takes of its tenant's credits
}

func grantLsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List what was granted, and how much of it was used", Args: cobra.NoArgs,
		Long:    "List what tenants and agents may use, how much of it they have used within its window, and the credits of tenants.",
		Example: "  scheduler grant ls\n  scheduler grant ls --json",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (grantList, error) {
		list, err := p.Grants(ctx)
		if err != nil {
			return grantList{}, err
		}
		balances, err := p.Credits(ctx)
		return grantList{api.Grants{Grants: list, Balances: balances.Balances}, balances.Run}, err
	}, func(w io.Writer, g grantList) error {
		if len(g.Grants.Grants)+len(g.Balances) == 0 {
			_, err := fmt.Fprintln(w, "nobody is bounded")
			return err
		}
		if err := printGrants(w, g.Grants.Grants); err != nil || len(g.Balances) == 0 {
			return err
		}
		return printBalances(w, &g)
	})
}

func printGrants(w io.Writer, list []api.GrantUse) error {
	if len(list) == 0 {
		return nil
	}
	return table(w, "OWNER\tTOKENS\tCOST\tTIME\tWINDOW\tNOTE", func(w io.Writer) {
		for i := range list {
			g, u := &list[i], &list[i].Used
			tokens, cost, wall, window, note := "-", "-", "-", "-", ""
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
			case g.Dead && g.UsedUp:
				note = "dead, used up"
			case g.Dead:
				note = "dead"
			case g.UsedUp:
				note = "used up"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", dash(queue.Owner{Tenant: g.Tenant, Agent: g.Agent}.String()), tokens, cost, wall, window, note)
		}
	})
}

func grantRmCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm TENANT[/AGENT]...", Short: "Lift all bounds of a tenant or an agent", Args: cobra.MinimumNArgs(1),
		Long: `Lift all bounds of tenants or agents: they may use what they want, and submit jobs again if
they were dead. Credits that a tenant has left are lost.`,
		Example: "  scheduler grant rm website/agent-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error {
				var errs []error
				lifted := struct {
					Grants []api.Grant `json:"grants"`
				}{[]api.Grant{}}
				for _, arg := range args {
					owner, err := ownerOf(arg)
					if err != nil {
						return usage(err)
					}
					g, known, err := grantOf(cmd.Context(), p, owner)
					dropped := false
					if err == nil && owner.Agent == "" {
						dropped, err = dropBalance(cmd.Context(), p, owner.Tenant)
					}
					if err == nil && !known && dropped {
						continue
					}
					if err == nil && !known {
						err = failure(fmt.Errorf("%s has no grant; `scheduler grant ls` lists them", arg))
					}
					if err == nil {
						err = setGrant(cmd.Context(), p, api.Grant{Tenant: owner.Tenant, Agent: owner.Agent})
					}
					if errs = append(errs, err); err == nil {
						lifted.Grants = append(lifted.Grants, g)
					}
				}
				if con.json {
					errs = append(errs, writeJSON(con.stdout, lifted))
				}
				return joined(errs)
			})
		},
	}
	con.jsonFlag(cmd, "print the grants that were lifted as JSON")
	return cmd
}
