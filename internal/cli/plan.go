package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

func planCommand(con *console, prog *program) *cobra.Command {
	var workers int
	cmd := &cobra.Command{
		Use: "plan FILE...", Short: "Show in which order the jobs of job files can run, and how long that takes", Args: cobra.MinimumNArgs(1),
		Long: `Show the levels of the jobs, the longest chain of jobs of which each waits for the one
before it, and in how many rounds so many workers finish all of them if each job takes one
round. Nothing is run; the files are checked as for a run.`,
		Example: "  scheduler plan examples/web-testing/pipeline.yaml\n  scheduler plan jobs.yaml -k 3 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("workers") && workers < 1 {
				return usage(fmt.Errorf("invalid --workers %d: use 1 or more", workers))
			}
			cfg, err := prog.loadConfig()
			if err != nil {
				return err
			}
			src, err := prog.readJobs(args, oneJob{}, &cfg)
			if err != nil {
				return err
			}
			plan, err := workflow.NewPlan(src.specs)
			if err != nil {
				return usage(err)
			}
			workers = cmp.Or(workers, cfg.Concurrency.Max)
			return con.print(planJSON(plan, src.specs, workers), func(w io.Writer) error { return printPlan(w, plan, src.specs, workers) })
		},
	}
	cmd.Flags().IntVarP(&workers, "workers", "k", 0, "how many jobs run at once (default: concurrency.max of the configuration)")
	return cmd
}

// planDocument is a plan as JSON.
type planDocument struct {
	Jobs     []plannedJob `json:"jobs"`
	Levels   [][]job.Name `json:"levels"`
	Critical []job.Name   `json:"critical_path"`
	Makespan struct {
		Workers int `json:"workers"`
		Least   int `json:"least"` // units of one job
		Most    int `json:"most"`
	} `json:"makespan"`
}

// plannedJob is one job of a plan.
type plannedJob struct {
	ID       job.Name   `json:"id"`
	Level    int        `json:"level"` // from 1
	Needs    []job.Name `json:"needs"`
	If       string     `json:"if,omitempty"`
	ForEach  bool       `json:"for_each,omitempty"`
	Loop     bool       `json:"loop,omitempty"`
	Critical bool       `json:"critical,omitempty"` // it is on the critical path
}

func planJSON(plan *workflow.Plan, specs []job.Spec, workers int) planDocument {
	d := planDocument{Jobs: planned(plan, specs), Levels: append([][]job.Name{}, plan.Levels...), Critical: append([]job.Name{}, plan.Critical...)}
	d.Makespan.Workers = workers
	d.Makespan.Least, d.Makespan.Most = plan.Bounds(workers)
	return d
}

// planned returns the jobs, the first level first.
func planned(plan *workflow.Plan, specs []job.Spec) []plannedJob {
	byName := map[job.Name]*job.Spec{}
	for i := range specs {
		byName[specs[i].Name] = &specs[i]
	}
	critical := map[job.Name]bool{}
	for _, name := range plan.Critical {
		critical[name] = true
	}
	list := []plannedJob{}
	for i, level := range plan.Levels {
		for _, name := range level {
			f := &byName[name].Flow
			list = append(list, plannedJob{
				ID: name, Level: i + 1, Needs: append([]job.Name{}, f.Needs...), If: f.If, ForEach: f.ForEach != nil, Loop: f.Loop != nil, Critical: critical[name],
			})
		}
	}
	return list
}

func printPlan(out io.Writer, plan *workflow.Plan, specs []job.Spec, workers int) error {
	err := table(out, "LEVEL\tJOB\tNEEDS\tNOTE", func(w io.Writer) {
		for _, j := range planned(plan, specs) {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", j.Level, j.ID, dash(namesText(j.Needs, " ")), dash(j.note()))
		}
	})
	if err != nil {
		return err
	}
	least, most := plan.Bounds(workers)
	rounds := counted(most, "round")
	if least < most {
		rounds = fmt.Sprintf("%d to %s", least, rounds)
	}
	_, err = fmt.Fprintf(out, "\ncritical path, %s: %s\n%s with %s: %s\n",
		counted(len(plan.Critical), "job"), namesText(plan.Critical, ", "),
		counted(plan.Jobs(), "job"), counted(workers, "worker"), rounds)
	return err
}

// note says what is special about when and how often a job runs.
func (j *plannedJob) note() string {
	var notes []string
	if j.If != "" {
		notes = append(notes, "if "+terminal.Clean(j.If))
	}
	if j.ForEach {
		notes = append(notes, "for each item of a list")
	}
	if j.Loop {
		notes = append(notes, "in a loop")
	}
	return strings.Join(notes, "; ")
}

func namesText(names []job.Name, separator string) string {
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = string(n)
	}
	return strings.Join(words, separator)
}

// counted returns "1 job", "2 jobs".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
