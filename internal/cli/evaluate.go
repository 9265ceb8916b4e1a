package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
)

// evaluateOptions are the flags of `evaluate`.
type evaluateOptions struct {
	values   map[eval.Dimension]*float64
	report   string
	by       string
	comment  string
	vector   string
	against  string
	weightOf string
}

func evaluateCommand(con *console, prog *program, at *target) *cobra.Command {
	o := evaluateOptions{values: map[eval.Dimension]*float64{}}
	cmd := &cobra.Command{
		Use: "evaluate JOB", Short: "Evaluate a job's work, or show its evaluations", Args: cobra.MaximumNArgs(1),
		Long: `Say how good the work of a job that has ended is. Each value is from 0 to 1, where 1 is
best; what you do not name stays as it was measured. It is counted once for each name (--by),
for the worker, the agent and the tenant of the job. Without values, show what was said so far.

A report is a JSON object such as {"quality": 0.9, "adherence": 0.8, "comment": "…"}.

With --vector instead of a job, work out the composite of such a file, and with --against
how far it is from another.`,
		Example: "  scheduler evaluate fix-login --quality 0.9 -m \"does what it says\"\n  scheduler evaluate fix-login --report review.json --by ci\n  scheduler evaluate fix-login\n  scheduler evaluate --vector web.json --weights legal",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (o.vector != "") {
				return usage(errors.New("no job was named: name one, or give a file with --vector"), "`scheduler evaluate --help` shows both")
			}
			if o.vector != "" {
				return evaluateFile(con, prog, cmd.Flags(), o)
			}
			if o.weightOf != "" || o.against != "" {
				return usage(errors.New("--weights and --against go with --vector: a job is judged by the weights of its own domain"))
			}
			said, err := o.said(cmd.Flags())
			if err != nil {
				return usage(err)
			}
			if said.Empty() && said.Comment == "" && !cmd.Flags().Changed("by") {
				return showEvaluations(cmd.Context(), con, at, args[0])
			}
			given := eval.Given{By: o.by, Report: said}
			if given.By == "" {
				given.By = userName()
			}
			if err := given.Validate(); err != nil {
				return usage(err, "e.g. scheduler evaluate "+args[0]+" --quality 0.9 --by anna")
			}
			return evaluate(cmd.Context(), con, at, args[0], given)
		},
	}
	f := cmd.Flags()
	for _, d := range eval.Dimensions() {
		o.values[d] = f.Float64(flagOf(d), 0, dimensionHelp(d))
	}
	f.StringVar(&o.report, "report", "", "take values from this JSON `FILE`; flags override it")
	f.StringVar(&o.by, "by", "", "evaluate under this `NAME` (default: yours)")
	f.StringVarP(&o.comment, "message", "m", "", "a comment")
	f.StringVar(&o.vector, "vector", "", "no job: work out the composite of this JSON `FILE`")
	f.StringVar(&o.weightOf, "weights", "", "with --vector: by the weights of this `DOMAIN` (default: default)")
	f.StringVar(&o.against, "against", "", "with --vector: the weighted distance from this JSON `FILE`, too")
	return cmd
}

func flagOf(d eval.Dimension) string { return strings.ReplaceAll(string(d), "_", "-") }

func dimensionHelp(d eval.Dimension) string {
	return map[eval.Dimension]string{
		eval.Quality: "how good it is, a `NUMBER` from 0 to 1", eval.Adherence: "how far it is what was asked for",
		eval.Speed: "how fast it came", eval.Cost: "how cheap it was",
		eval.ErrorRate: "how free it is of errors: 1 is none", eval.RevisionCount: "how rarely it had to be revised: 1 is never",
	}[d]
}

// said reads the report and the flags above it.
func (o *evaluateOptions) said(f *pflag.FlagSet) (eval.Report, error) {
	var r eval.Report
	if o.report != "" {
		var err error
		if r, err = readEvaluation(o.report); err != nil {
			return r, fmt.Errorf("--report %w", err)
		}
	}
	for _, d := range eval.Dimensions() {
		if f.Changed(flagOf(d)) {
			r.Vector = r.With(d, *o.values[d])
		}
	}
	if f.Changed("message") {
		r.Comment = o.comment
	}
	var field *job.FieldError
	if err := r.Validate(); errors.As(err, &field) {
		return r, fmt.Errorf("--%s %s", flagOf(eval.Dimension(field.Field)), field.Message)
	}
	return r, nil
}

// readEvaluation reads a report; the error names the file.
func readEvaluation(path string) (eval.Report, error) {
	text, err := strictyaml.ReadFile(path, eval.MaxReport)
	if err == nil && len(text) > eval.MaxReport {
		err = errors.New("is larger than 1 MiB")
	}
	var r eval.Report
	if err == nil {
		r, err = eval.ReadReport(text)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// evaluateFile works out a composite without a job.
func evaluateFile(con *console, prog *program, f *pflag.FlagSet, o evaluateOptions) error {
	if o.report != "" || o.by != "" || o.comment != "" {
		return usage(errors.New("--report, --by and --message go with a job, not with --vector"))
	}
	for _, d := range eval.Dimensions() {
		if f.Changed(flagOf(d)) {
			return usage(fmt.Errorf("--%s goes with a job, not with --vector: put it into %s", flagOf(d), o.vector))
		}
	}
	cfg, err := prog.readConfig(prog.configOptions())
	if err != nil {
		return err
	}
	table := eval.Table(cfg.Evaluation.Weights)
	weights, of := eval.WeightsOf(table, o.weightOf)
	if o.weightOf != "" && of != o.weightOf {
		return usage(fmt.Errorf("--weights %q: that domain has none; use one of %s", o.weightOf, strings.Join(sortedKeys(table), ", ")))
	}
	r, err := readEvaluation(o.vector)
	if err != nil {
		return usage(fmt.Errorf("--vector %w", err))
	}
	out := calculation{Vector: r.Vector, Weights: weights, WeightsOf: of}
	composite, any := weights.Composite(r.Vector)
	if !any {
		return usage(fmt.Errorf("--vector %s: none of its dimensions counts by the weights of %s", o.vector, of))
	}
	out.Composite = composite
	if o.against != "" {
		other, err := readEvaluation(o.against)
		if err != nil {
			return usage(fmt.Errorf("--against %w", err))
		}
		d, any := weights.Distance(r.Vector, other.Vector)
		if !any {
			return usage(fmt.Errorf("--against %s: it has no dimension in common with %s that counts", o.against, o.vector))
		}
		out.Distance = &d
	}
	if con.json {
		return failure(writeJSON(con.stdout, out))
	}
	if err := printVector(con.stdout, r.Vector, weights, nil); err != nil {
		return failure(err)
	}
	fmt.Fprintf(con.stdout, "composite %.4f by the weights of %s\n", composite, of)
	if out.Distance != nil {
		fmt.Fprintf(con.stdout, "distance %.4f from %s\n", *out.Distance, o.against)
	}
	return nil
}

// calculation is what `evaluate --vector --json` prints.
type calculation struct {
	Vector    eval.Vector  `json:"vector"`
	Weights   eval.Weights `json:"weights"`
	WeightsOf string       `json:"weights_of"`
	Composite float64      `json:"composite"`
	Distance  *float64     `json:"distance,omitempty"`
}

// evaluate counts what somebody says.
func evaluate(ctx context.Context, con *console, at *target, ref string, given eval.Given) error {
	return at.do(func(p *peer) error {
		j, err := p.Job(ctx, ref)
		if err != nil {
			return err
		}
		out, err := change(ctx, p, func() (api.Evaluations, error) {
			return p.Evaluate(ctx, j.Job.ID, api.Judgement{By: given.By, Vector: api.Vector(given.Vector), Comment: given.Comment})
		})
		if refused, ok := errors.AsType[*api.Problem](err); ok && refused.Status == http.StatusBadRequest {
			err = usage(refused)
		}
		if err != nil {
			return err
		}
		if con.json {
			return writeJSON(con.stdout, out)
		}
		for _, a := range out.Alerts {
			fmt.Fprintf(con.stderr, "scheduler: %s %s drifts in domain %s: this is %.2f from its average, beyond %.2f\n", a.Subject.Kind, a.Subject.Name, a.Domain, a.Drift, a.Threshold)
		}
		return printEvaluations(con.stdout, out.Evaluations)
	})
}

// showEvaluations shows what was said of a job or, if nobody has said anything,
// what can be measured.
func showEvaluations(ctx context.Context, con *console, at *target, ref string) error {
	return at.do(func(p *peer) error {
		out, err := p.Evaluations(ctx, ref)
		switch {
		case err != nil:
			return meant(ctx, p, ref, p.refused(err))
		case len(out.Evaluations) == 0 && out.Measured != nil && !con.json:
			fmt.Fprintln(con.stderr, "nobody has evaluated it; this is what was measured, and it counts for nobody")
			return printEvaluation(con.stdout, out.Measured)
		}
		return con.print(out, func(w io.Writer) error { return printEvaluations(w, out.Evaluations) })
	})
}

func printEvaluations(w io.Writer, list []api.Evaluation) error {
	for i := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := printEvaluation(w, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

func printEvaluation(w io.Writer, e *api.Evaluation) error {
	fmt.Fprintf(w, "%s  %s  attempt %d on %s, domain %s, %s\n", e.Job, dash(string(e.Name)), e.Attempt, dash(e.Subjects[0].Name), dash(e.Domain), dash(e.Source))
	if err := printVector(w, eval.Vector(e.Vector), eval.Weights(e.Weights), e.Sources); err != nil {
		return err
	}
	if e.Comment != "" {
		fmt.Fprintf(w, "%s\n", terminal.Clean(e.Comment))
	}
	for _, p := range e.Problems {
		fmt.Fprintf(w, "not used: %s\n", terminal.Clean(p))
	}
	_, err := fmt.Fprintf(w, "composite %.4f by the weights of %s\n", e.Composite, dash(e.WeightsOf))
	return err
}

func printVector(w io.Writer, v eval.Vector, weights eval.Weights, sources map[string]string) error {
	head := "DIMENSION\tVALUE\tWEIGHT"
	if sources != nil {
		head += "\tSOURCE"
	}
	return table(w, head, func(w io.Writer) {
		for _, d := range eval.Dimensions() {
			value := "-"
			if x := v.Get(d); x != nil {
				value = fmt.Sprintf("%.4g", *x)
			}
			fmt.Fprintf(w, "%s\t%s\t%.4g", d, value, weights.Get(d))
			if sources != nil {
				fmt.Fprintf(w, "\t%s", dash(sources[string(d)]))
			}
			fmt.Fprintln(w)
		}
	})
}
