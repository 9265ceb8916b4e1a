package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/server"
)

func (m *Main) reputationCommand() *cobra.Command {
	var f client.ReputationQuery
	var asJSON bool
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
			cfg, err := m.readConfig(m.configOptions())
			if err != nil {
				return err
			}
			return m.read(func(r *reader) error {
				list, err := r.Reputations(cmd.Context(), f)
				if err != nil {
					return err
				}
				if asJSON {
					return writeJSON(m.stdout, api.Reputations{Reputations: list})
				}
				if len(list) == 0 {
					fmt.Fprintln(m.stderr, "nothing was evaluated"+cmp.Or(among(f), " yet"))
					return nil
				}
				return printReputations(m.out(), list, cfg.Evaluation.Drift, time.Now())
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Domain, "domain", "", "only in this `DOMAIN`")
	flags.StringVar((*string)(&f.Kind), "kind", "", "only those of this `KIND`: worker, agent or tenant")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(m.similarCommand())
	return cmd
}

// checkKind looks at the value of --kind.
func checkKind(kind api.SubjectKind) error {
	switch eval.Kind(kind) {
	case "", eval.Worker, eval.Agent, eval.Tenant:
		return nil
	}
	return usage(fmt.Errorf("--kind %q is unknown, want %s, %s or %s", kind, eval.Worker, eval.Agent, eval.Tenant))
}

func (m *Main) similarCommand() *cobra.Command {
	var q eval.Like
	var asJSON bool
	cmd := &cobra.Command{
		Use: "similar SUBJECT", Short: "Show whose work is like that of a worker, agent or tenant", Args: cobra.ExactArgs(1),
		Long: `Show whose work is like that of SUBJECT, the nearest first: those of the same kind and domain,
by the weighted distance of what their work was like on average, in each dimension. 0 is alike, 1 as
different as can be. DIMS says over how many dimensions: those of which both were evaluated.`,
		Example: "  scheduler reputation similar website/legal-analyst --domain legal\n  scheduler reputation similar claude:opus --max-distance 0.1",
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Name = args[0]
			if err := checkKind(api.SubjectKind(q.Kind)); err != nil {
				return err
			}
			switch {
			case cmd.Flags().Changed("max-distance") && !(q.MaxDistance > 0 && q.MaxDistance <= 1):
				return usage(fmt.Errorf("--max-distance %g is not allowed, want a number above 0 and at most 1", q.MaxDistance))
			case q.Limit < 0:
				return usage(fmt.Errorf("--limit %d is negative, want a number of subjects, or 0 for all", q.Limit))
			}
			cfg, err := m.readConfig(m.configOptions())
			if err != nil {
				return err
			}
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			of, list, err := eval.SimilarTo(cmd.Context(), store, eval.Table(cfg.Evaluation.Weights), q)
			if errors.Is(err, eval.ErrSeveralSubjects) {
				return usage(fmt.Errorf("--kind is missing: %w", err))
			}
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, server.SimilarOf(&of, list)))
			}
			if len(list) == 0 {
				fmt.Fprintf(m.stderr, "no other %s can be compared with %s in domain %s\n", of.Subject.Kind, of.Subject.Name, of.Domain)
				return nil
			}
			return failure(table(m.out(), "SUBJECT\tDISTANCE\tDIMS\tR\tN\tWHEN", func(w io.Writer) {
				for i := range list {
					s := &list[i]
					fmt.Fprintf(w, "%s\t%.4f\t%d\t%.4f\t%d\t%s\n", dash(s.Subject.Name), s.Distance, s.Dimensions, s.R, s.N, ago(s.LastAt, time.Now()))
				}
			}))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Domain, "domain", "", "in this `DOMAIN` (default: "+eval.DefaultDomain+"; of a tenant all)")
	flags.StringVar((*string)(&q.Kind), "kind", "", "the `KIND` of SUBJECT, where several have its name: worker, agent or tenant")
	flags.Float64Var(&q.MaxDistance, "max-distance", 0, "nobody who is further away than this `NUMBER`")
	flags.IntVarP(&q.Limit, "limit", "n", 0, "at most `N` subjects")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
