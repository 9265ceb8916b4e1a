package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

func allowCommand(con *console, at *target) *cobra.Command {
	var once, tenant bool
	in := api.AllowRun{Scope: api.GrantJob}
	cmd := &cobra.Command{
		Use: "allow JOB HOST[:PORT]...", Short: "Allow the runs of a job to reach hosts that they were refused", Args: cobra.MinimumNArgs(2),
		Long: `Allow the runs of a job to reach hosts that its network does not name. ` + "`scheduler show JOB`" + ` lists
what they were refused. A host is written as in the job's network: example.com, example.com:8443,
*.example.com, or a preset such as npm.

A run that is under way has it from its next connection on; so do further runs of the job, also
when it is requeued or retried. --once is for the run that is under way, or the next one, alone;
--tenant is for all jobs of the job's tenant but those that say network: none.
` + "`scheduler grants ls` and `revoke`" + ` show and end what was allowed.`,
		Example: "  scheduler allow fix-login registry.example.com\n  scheduler allow fix-login 10.0.0.5:8080\n  scheduler allow fix-login --tenant npm",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := egress.Parse(args[1:], egress.Presets()); err != nil {
				return usage(err)
			}
			switch {
			case once:
				in.Scope = api.GrantOnce
			case tenant:
				in.Scope = api.GrantTenant
			}
			in.By = userName()
			return at.do(func(p *peer) error {
				list := []api.AllowedRun{}
				var errs []error
				for _, in.Entry = range args[1:] {
					a, err := change(cmd.Context(), p, func() (api.AllowedRun, error) { return p.AllowRun(cmd.Context(), args[0], in) })
					if err = mends(meant(cmd.Context(), p, args[0], err)); err != nil {
						errs = append(errs, err)
						continue
					}
					if list = append(list, a); !con.json {
						fmt.Fprintf(con.stdout, "%s may be reached %s\n", a.Grant.Entry, terminal.Clean(allowedFor(&a)))
					}
				}
				if con.json {
					errs = append(errs, writeJSON(con.stdout, map[string]any{"allowed": list}))
				}
				return joined(errs)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&once, "once", false, "only the run that is under way, or the next one")
	f.BoolVar(&tenant, "tenant", false, "the runs of all jobs of the job's tenant")
	cmd.MarkFlagsMutuallyExclusive("once", "tenant")
	con.jsonFlag(cmd, "print what was allowed as JSON")
	return cmd
}

// allowedFor says for which runs a grant is, and from when on.
func allowedFor(a *api.AllowedRun) string {
	g, now := &a.Grant, ", from now on"
	if !a.Applied {
		now = ", from its next attempt on"
	}
	switch g.Scope {
	case api.GrantOnce:
		return fmt.Sprintf("by attempt %d alone%s", g.Attempt, map[bool]string{true: ", from now on"}[a.Applied])
	case api.GrantTenant:
		return fmt.Sprintf("by all jobs of tenant %s, from their next connection or attempt on", g.Tenant)
	}
	return "by the job" + now
}

func grantsCommand(con *console, at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "grants", Short: "Show and revoke what runs were allowed besides their jobs",
		Long: `Show and revoke what people have allowed runs beside what their jobs say, with ` + "`scheduler allow`" + ` or
` + "`scheduler answer`" + `.
` + "`scheduler grant`" + `, without s, bounds what tenants and agents may use.`,
		Args:    cobra.NoArgs,
		Example: "  scheduler grants ls\n  scheduler grants revoke registry.example.com --tenant website",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(grantsLsCommand(at), grantsRevokeCommand(con, at))
	return cmd
}

func grantsLsCommand(at *target) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use: "ls [JOB]", Short: "List what runs were allowed", Args: cobra.MaximumNArgs(1),
		Long:    "List what the runs of tenants were allowed, or with a job what its runs were: its own, and its tenant's.",
		Example: "  scheduler grants ls\n  scheduler grants ls fix-login --json",
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this `TENANT`")
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (api.RunGrants, error) {
		if len(args) == 0 {
			return p.RunGrants(ctx, job.Tenant(tenant))
		}
		of, err := p.JobGrants(ctx, args[0])
		return api.RunGrants{Grants: of.Grants}, meant(ctx, p, args[0], err)
	}, func(w io.Writer, list api.RunGrants) error {
		if len(list.Grants) == 0 {
			_, err := fmt.Fprintln(w, "no run was allowed more than its job says")
			return err
		}
		return table(w, "KIND\tWHAT\tTENANT\tFOR\tBY\tSINCE", func(w io.Writer) {
			for i := range list.Grants {
				g := &list.Grants[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", g.Kind, g.Entry, g.Tenant, grantedTo(g), dash(terminal.Clean(g.By)), g.At.Local().Format(time.DateTime))
			}
		})
	})
}

// grantedTo says for which runs a grant is.
func grantedTo(g *api.RunGrant) string {
	switch g.Scope {
	case api.GrantOnce:
		return fmt.Sprintf("job %s, attempt %d", g.Job.Short(), g.Attempt)
	case api.GrantTenant:
		return "all jobs"
	}
	return "job " + g.Job.Short()
}

func grantsRevokeCommand(con *console, at *target) *cobra.Command {
	var in api.RevokeRun
	cmd := &cobra.Command{
		Use: "revoke WHAT...", Short: "Revoke what runs were allowed", Args: cobra.MinimumNArgs(1),
		Long: `Revoke what the runs of a tenant, or of a job, were allowed. Runs that are under way are refused their
next connection; those that are open go on.`,
		Example: "  scheduler grants revoke registry.example.com --tenant website\n  scheduler grants revoke --kind command \"npm test *\"\n  scheduler grants revoke npm --job fix-login",
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.Job != "" && !cmd.Flags().Changed("tenant") {
				in.Tenant = ""
			}
			return at.do(func(p *peer) error {
				list := api.RunGrants{Grants: []api.RunGrant{}}
				var errs []error
				for _, in.Entry = range args {
					g, err := change(cmd.Context(), p, func() (api.RunGrant, error) { return p.RevokeRun(cmd.Context(), in) })
					if err = mends(err); err != nil {
						errs = append(errs, err)
						continue
					}
					list.Grants = append(list.Grants, g)
				}
				if con.json {
					errs = append(errs, writeJSON(con.stdout, list))
				}
				return joined(errs)
			})
		},
	}
	cmd.Flags().StringVar((*string)(&in.Tenant), "tenant", string(job.DefaultTenant), "what the runs of this `TENANT` were allowed")
	cmd.Flags().StringVar((*string)(&in.Kind), "kind", string(api.GrantNetwork), "the `KIND` of what was allowed: network, command, write, read, host or tool")
	cmd.Flags().StringVar(&in.Job, "job", "", "what the runs of this `JOB` were allowed")
	cmd.MarkFlagsMutuallyExclusive("tenant", "job")
	con.jsonFlag(cmd, "print what was revoked as JSON")
	return cmd
}

// mayBeRefused reports whether the runs of a job may have been refused hosts.
func mayBeRefused(attempts []job.Attempt) bool {
	for i := range attempts {
		if o := attempts[i].Outcome; o == nil || o.Sandbox != nil && o.Sandbox.Denied > 0 && !o.Sandbox.Report {
			return true
		}
	}
	return false
}

// maxShownHosts bounds the hosts that show lists; the rest is counted.
const maxShownHosts = 10

// showGrants says what the runs of a job were allowed and refused, and how to allow that.
func showGrants(w io.Writer, name string, g *api.JobGrants) {
	if len(g.Grants) > 0 {
		fmt.Fprint(w, "\nallowed besides:\n")
	}
	for i := range g.Grants {
		x := &g.Grants[i]
		fmt.Fprintf(w, "  %s %s (%s), by %s on %s\n", x.Kind, x.Entry, grantedTo(x), dash(terminal.Clean(x.By)), x.At.Local().Format(time.DateTime))
	}
	if len(g.Refused) == 0 {
		return
	}
	fmt.Fprint(w, "\nrefused hosts:\n")
	for i, h := range g.Refused {
		if i == maxShownHosts {
			fmt.Fprintf(w, "  … %s more: scheduler logs %s\n", count(len(g.Refused)-i, "host"), name)
			break
		}
		fmt.Fprintf(w, "  %s  %s, the last time in attempt %d: %s\n", terminal.Clean(h.Entry), count(h.Times, "time"), h.Attempt, terminal.Clean(h.Reason))
	}
	fmt.Fprintf(w, "allow one for the job: scheduler allow %s HOST   for one run: --once   for all jobs of its tenant: --tenant\n", name)
}
