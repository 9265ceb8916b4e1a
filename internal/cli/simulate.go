package cli

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/internal/simulate"
	"github.com/agentsched/agentsched/internal/terminal"
)

// simulateOptions are the flags of `simulate`.
type simulateOptions struct {
	policies []string
	all      bool
	svg      string
	seed     int64
	width    int
}

func simulateCommand(con *console, prog *program) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use: "simulate FILE", Short: "Try policies on a described workload, in virtual time", Args: cobra.ExactArgs(1),
		Long: fmt.Sprintf(`Try on a workload what a policy would do: who would get which share of the slots, wait
for how long, and starve. Nothing is run, and time is virtual: a day takes well under a
second. FILE describes the slots, the tenants and how their jobs arrive; docs/simulate.md
explains its fields, examples/workloads/ has some to begin with.

The policies are %s. Without --policy and --all it is
the file's own, and all of them if the file names none. All meet the same jobs.`, wordList(prog.policyNames())),
		Example: "  scheduler simulate examples/workloads/agency.yaml --all\n  scheduler simulate day.yaml --policy deficit --policy drf --svg shares.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := simulate.Load(args[0])
			if err != nil {
				return usage(err)
			}
			if cmd.Flags().Changed("seed") {
				if w.Seed = o.seed; w.Seed < 0 {
					return usage(fmt.Errorf("invalid --seed %d: use a whole number of 0 or more", o.seed))
				}
			}
			if cmd.Flags().Changed("width") && o.width < 40 {
				return usage(fmt.Errorf("invalid --width %d: use 40 columns or more", o.width))
			}
			return runSimulation(con, prog, w, o)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.policies, "policy", nil, "try the policy `NAME` instead of the file's; can be given several times")
	flags.BoolVar(&o.all, "all", false, "try every policy")
	flags.StringVar(&o.svg, "svg", "", "draw the shares over time into `FILE`, too")
	flags.Int64Var(&o.seed, "seed", 0, "use the seed `N` instead of the file's")
	flags.IntVar(&o.width, "width", 0, "draw `N` columns wide (default: the terminal's width, or 80)")
	cmd.MarkFlagsMutuallyExclusive("policy", "all")
	return cmd
}

func runSimulation(con *console, prog *program, w *simulate.Workload, o simulateOptions) error {
	names, err := o.names(w, prog.policyNames())
	if err != nil {
		return err
	}
	var results []*simulate.Result
	for _, name := range names {
		r, err := w.Run(name, prog.policies.make)
		if err != nil {
			return failure(err)
		}
		results = append(results, r)
	}
	if o.svg != "" {
		var b bytes.Buffer
		if err := simulate.SVG(&b, w, results); err != nil {
			return failure(err)
		}
		if err := os.WriteFile(o.svg, b.Bytes(), 0o666); err != nil {
			return failure(fmt.Errorf("write the drawing: %w", err))
		}
	}
	if con.json {
		return failure(writeJSON(con.stdout, simulate.JSON(w, results)))
	}
	if err := simulate.Text(con.stdout, w, results, con.textOptions(o.width)); err != nil {
		return failure(err)
	}
	if o.svg != "" {
		fmt.Fprintf(con.stdout, "\ndrawn: %s\n", terminal.Clean(o.svg))
	}
	return nil
}

// names returns the policies to try, each once.
func (o *simulateOptions) names(w *simulate.Workload, known []string) ([]string, error) {
	switch {
	case len(o.policies) > 0:
		var names []string
		for _, name := range o.policies {
			if !slices.Contains(known, name) {
				return nil, usage(fmt.Errorf("unknown --policy %q: use %s", name, wordList(known)))
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names, nil
	case o.all || w.Policy.Name == "":
		return known, nil
	}
	return []string{w.Policy.Name}, nil
}

// wordList writes words as in a sentence: "a, b or c".
func wordList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// textOptions says what standard output can show.
func (con *console) textOptions(width int) simulate.TextOptions {
	opts := simulate.TextOptions{Width: width, ASCII: !con.unicode()}
	if out := con.stdoutFile(); out != nil {
		opts.Colour = con.colour(out)
		if w, _, err := term.GetSize(int(out.Fd())); err == nil && width == 0 {
			opts.Width = w
		}
	}
	return opts
}

// unicode reports whether the locale's characters are UTF-8: of the variables
// that POSIX names for it the first that is set counts (XBD, 8.2).
func (con *console) unicode() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := con.getenv(name); locale != "" {
			locale = strings.ToUpper(locale)
			return strings.Contains(locale, "UTF-8") || strings.Contains(locale, "UTF8")
		}
	}
	return false
}
