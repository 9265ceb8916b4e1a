package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (m *Main) agentsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "Show the agents that job files have declared",
		Long: `Show the agents that job files have declared: who they are, and what they do.
An agent's profile never changes; docs/job-file.md says how to declare one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(m.agentsLsCommand(), m.agentsShowCommand())
	return cmd
}

func (m *Main) agentsLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the agents, with how many of their jobs are in which state", Args: cobra.NoArgs,
		Long:    "List the agents that job files have declared, and how many of the jobs of each are in which state.",
		Example: "  scheduler agents ls\n  scheduler agents ls --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			list, err := scheduler.Agents(cmd.Context(), store)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, map[string]any{"agents": append([]scheduler.Agent{}, list...)}))
			}
			if len(list) == 0 {
				fmt.Fprintln(m.stdout, "no agent was declared")
				return nil
			}
			return failure(table(m.out(), "AGENT\tTENANT\tWORKER\tMODEL\tDOMAINS\tOVERSIGHT\tJOBS", func(w io.Writer) {
				for i := range list {
					a := &list[i]
					p := &a.Profile
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Name, a.Tenant, dash(string(p.Worker)), dash(p.Model), dash(strings.Join(p.Domains, ", ")), oversightWord(p.Oversight), statesText(a.Jobs))
				}
			}))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func oversightWord(o *job.Oversight) string {
	if o == nil {
		return "-"
	}
	return string(o.Mode)
}

// statesText lists how many jobs are in which state, in the order of a job's way.
func statesText(jobs map[job.RunState]int) string {
	var parts []string
	for _, state := range job.RunStates() {
		if n := jobs[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return dash(strings.Join(parts, ", "))
}

func (m *Main) agentsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show [TENANT/]AGENT", Short: "Show an agent's profile and its jobs", Args: cobra.ExactArgs(1),
		Long:    "Show what was declared of an agent, and its jobs. The tenant is needed where several have an agent of the name.",
		Example: "  scheduler agents show writer\n  scheduler agents show website/writer --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, store, err := m.look(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			a, err := findAgent(cmd.Context(), store, args[0])
			if err != nil {
				return err
			}
			jobs, err := scheduler.AgentJobs(cmd.Context(), store, a)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return failure(writeJSON(m.stdout, map[string]any{"agent": a, "jobs": stored(jobs...)}))
			}
			return failure(printAgent(m.out(), a, stored(jobs...), time.Now()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// findAgent returns the agent that ref names, by its tenant and name or by its
// name alone where only one tenant has it.
func findAgent(ctx context.Context, store queue.Store, ref string) (*scheduler.Agent, error) {
	all, err := scheduler.Agents(ctx, store)
	if err != nil {
		return nil, failure(err)
	}
	var found []string
	var one *scheduler.Agent
	for i := range all {
		full := string(all[i].Tenant) + "/" + string(all[i].Name)
		if ref == full || ref == string(all[i].Name) {
			found, one = append(found, full), &all[i]
		}
	}
	switch len(found) {
	case 0:
		return nil, failure(fmt.Errorf("no agent %s was declared; `scheduler agents ls` lists them", ref))
	case 1:
		return one, nil
	}
	return nil, usage(fmt.Errorf("%s is an agent of several tenants: name one of %s", ref, strings.Join(found, ", ")))
}

func printAgent(w io.Writer, a *scheduler.Agent, jobs []api.Job, now time.Time) error {
	p := &a.Profile
	for _, f := range []struct{ name, value string }{
		{"agent", string(a.Name)}, {"tenant", string(a.Tenant)}, {"declared", clock(a.Since, now)}, {"worker", string(p.Worker)}, {"model", p.Model},
		{"domains", strings.Join(p.Domains, ", ")}, {"capabilities", joinedWords(p.Capabilities)}, {"oversight", strings.TrimPrefix(oversightWord(p.Oversight), "-")},
		{"evaluation", p.EvaluationDomain}, {"system prompt", firstLine(p.SystemPrompt)}, {"input", string(p.Input)}, {"output", string(p.Output)},
	} {
		if f.value != "" {
			fmt.Fprintf(w, "%-14s %s\n", f.name+":", f.value)
		}
	}
	fmt.Fprintln(w)
	if len(jobs) == 0 {
		fmt.Fprintln(w, "it has no jobs")
		return nil
	}
	return table(w, "JOB\tID\tSTATE\tATTEMPTS\tSUBMITTED\tNOTE", func(w io.Writer) {
		for i := range jobs {
			e := &jobs[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", e.Spec.Name, e.ID.Short(), stateWord(e), e.Attempts, clock(e.CreatedAt, now), note(e))
		}
	})
}

func joinedWords[T ~string](list []T) string { return strings.Join(wordsOf(list), ", ") }
