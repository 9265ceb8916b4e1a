package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
)

func reputationCommand(con *console, prog *program, at *target) *cobra.Command {
	var f client.ReputationQuery
	cmd := &cobra.Command{
		Use: "reputation [SUBJECT]", Short: "Show how good the work of workers, agents and tenants was", Args: cobra.MaximumNArgs(1),
		Long: `Show how good the work of workers, agents and tenants was, by domain, the best first.
SUBJECT is a worker (claude, with all its models, or claude:opus), an agent (website/agent-7)
or a tenant (website, with its agents).

R is the reputation, from 0 to 1, N of how many evaluations it is, LAST the composite of the
latest and DRIFT how far that was from the average before it; ! is beyond evaluation.drift.`,
		Example: "  scheduler reputation\n  scheduler reputation claude --domain legal",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.Subject = args[0]
			}
			if err := checkKind(f.Kind); err != nil {
				return err
			}
			cfg, err := prog.readConfig(prog.configOptions())
			if err != nil {
				return err
			}
			return at.do(func(p *peer) error {
				list, err := p.Reputations(cmd.Context(), f)
				if err != nil {
					return err
				}
				return con.print(api.Reputations{Reputations: list}, func(w io.Writer) error {
					if len(list) == 0 {
						fmt.Fprintln(con.stderr, "nothing was evaluated"+cmp.Or(among(f), " yet"))
						return nil
					}
					return printReputations(w, list, cfg.Evaluation.Drift, time.Now())
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Domain, "domain", "", "only in this `DOMAIN`")
	flags.StringVar((*string)(&f.Kind), "kind", "", "only those of this `KIND`: worker, agent or tenant")
	cmd.AddCommand(similarCommand(con, at))
	return cmd
}

// checkKind looks at the value of --kind.
func checkKind(kind api.SubjectKind) error {
	switch eval.Kind(kind) {
	case "", eval.Worker, eval.Agent, eval.Tenant:
		return nil
	}
	return usage(fmt.Errorf("unknown --kind %q: use %s, %s or %s", kind, eval.Worker, eval.Agent, eval.Tenant))
}

func similarCommand(con *console, at *target) *cobra.Command {
	var q client.SimilarQuery
	cmd := &cobra.Command{
		Use: "similar SUBJECT", Short: "Show subjects whose work is like that of a worker, agent or tenant", Args: cobra.ExactArgs(1),
		Long: `Show whose work is like that of SUBJECT, the nearest first: those of the same kind and domain,
by the weighted distance of what their work was like on average, in each dimension. 0 is alike, 1 as
different as can be. DIMS says over how many dimensions: those of which both were evaluated.`,
		Example: "  scheduler reputation similar website/legal-analyst --domain legal\n  scheduler reputation similar claude:opus --max-distance 0.1",
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Domain, "domain", "", "in this `DOMAIN` (default: "+eval.DefaultDomain+"; of a tenant all)")
	flags.StringVar((*string)(&q.Kind), "kind", "", "the `KIND` of SUBJECT, where several have its name: worker, agent or tenant")
	flags.Float64Var(&q.MaxDistance, "max-distance", 0, "nobody who is further away than this `NUMBER`")
	flags.IntVarP(&q.Limit, "limit", "n", 0, "at most `N` subjects, 1 to 1000 (default 100)")
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (out api.SimilarSubjects, err error) {
		q.Subject = args[0]
		if err := checkKind(q.Kind); err != nil {
			return out, err
		}
		switch {
		case flags.Changed("max-distance") && !(q.MaxDistance > 0 && q.MaxDistance <= 1):
			return out, usage(fmt.Errorf("invalid --max-distance %g: use a number above 0 and at most 1", q.MaxDistance))
		case flags.Changed("limit") && (q.Limit < 1 || q.Limit > maxPage):
			return out, usage(fmt.Errorf("invalid --limit %d: use 1 to %d", q.Limit, maxPage))
		}
		out, err = p.Similar(ctx, q)
		if refused, ok := errors.AsType[*api.Problem](err); ok && refused.Status == http.StatusBadRequest {
			err = usage(fmt.Errorf("--kind is missing: %s", strings.TrimPrefix(refused.Detail, "query.kind: ")))
		}
		return out, err
	}, func(w io.Writer, v api.SimilarSubjects) error {
		if len(v.Similar) == 0 {
			fmt.Fprintf(con.stderr, "no other %s can be compared with %s in domain %s\n", v.Of.Subject.Kind, v.Of.Subject.Name, v.Of.Domain)
			return nil
		}
		return table(w, "SUBJECT\tDISTANCE\tDIMS\tR\tN\tWHEN", func(w io.Writer) {
			for i := range v.Similar {
				s := &v.Similar[i]
				fmt.Fprintf(w, "%s\t%.4f\t%d\t%.4f\t%d\t%s\n", dash(s.Subject.Name), s.Distance, s.Dimensions, s.R, s.N, ago(s.LastAt, time.Now()))
			}
		})
	})
}

// among says what was asked for.
func among(f client.ReputationQuery) (text string) {
	if f.Kind != "" {
		text += " of a " + string(f.Kind)
	}
	if f.Subject != "" {
		text += " of " + f.Subject
	}
	if f.Domain != "" {
		text += " in domain " + f.Domain
	}
	return text
}

func printReputations(w io.Writer, list []api.Reputation, threshold float64, now time.Time) error {
	return table(w, "KIND\tSUBJECT\tDOMAIN\tR\tN\tLAST\tDRIFT\tWHEN", func(w io.Writer) {
		for i := range list {
			r := &list[i]
			drift := fmt.Sprintf("%.2f", r.Drift)
			if eval.Drifted(r.Drift, r.N, threshold) {
				drift += "!"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.4f\t%d\t%.4f\t%s\t%s\n", r.Subject.Kind, dash(r.Subject.Name), dash(r.Domain), r.R, r.N, r.Last, drift, ago(r.LastAt, now))
		}
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
