package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

func agentsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "Show the agents that job files have declared",
		Long: `Show the agents that job files have declared: who they are, and what they do.
An agent's profile never changes; docs/job-file.md says how to declare one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(agentsLsCommand(at), agentsShowCommand(at))
	return cmd
}

func agentsLsCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", Short: "List the agents, with how many of their jobs are in which state", Args: cobra.NoArgs,
		Long:    "List the agents that job files have declared, and how many of the jobs of each are in which state.",
		Example: "  scheduler agents ls\n  scheduler agents ls --json",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, _ []string) (api.Agents, error) {
		list, err := p.Agents(ctx)
		return api.Agents{Agents: list}, err
	}, func(w io.Writer, v api.Agents) error {
		if len(v.Agents) == 0 {
			_, err := fmt.Fprintln(w, "no agent was declared")
			return err
		}
		return table(w, "AGENT\tTENANT\tWORKER\tMODEL\tDOMAINS\tOVERSIGHT\tJOBS", func(w io.Writer) {
			for i := range v.Agents {
				a := &v.Agents[i]
				p := &a.Profile
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, a.Tenant, dash(string(p.Worker)), dash(p.Model), dash(strings.Join(p.Domains, ", ")), oversightWord(p.Oversight), statesText(a.States))
			}
		})
	})
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

// agentDetail is what `agents show --json` prints.
type agentDetail struct {
	Agent api.Agent `json:"agent"`
	Jobs  []api.Job `json:"jobs"`
}

func agentsShowCommand(at *target) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [TENANT/]AGENT", Short: "Show an agent's profile and its jobs", Args: cobra.ExactArgs(1),
		Long:    "Show what was declared of an agent, and its jobs. The tenant is needed where several have an agent of the name.",
		Example: "  scheduler agents show writer\n  scheduler agents show website/writer --json",
	}
	return shows(at, cmd, func(ctx context.Context, p *peer, args []string) (out agentDetail, err error) {
		if out.Agent, err = findAgent(ctx, p, args[0]); err != nil {
			return out, err
		}
		jobs, err := p.Jobs(ctx, jobQuery{tenant: out.Agent.Tenant, agent: out.Agent.Profile.Name})
		out.Jobs = jobs.Jobs
		return out, err
	}, printAgent)
}

// findAgent returns the agent that ref names, by its tenant and name or by its
// name alone where only one tenant has it.
func findAgent(ctx context.Context, p *peer, ref string) (one api.Agent, err error) {
	all, err := p.Agents(ctx)
	if err != nil {
		return one, err
	}
	var found []string
	for i := range all {
		full := string(all[i].Tenant) + "/" + string(all[i].Profile.Name)
		if ref == full || ref == string(all[i].Profile.Name) {
			found, one = append(found, full), all[i]
		}
	}
	switch len(found) {
	case 0:
		return one, failure(fmt.Errorf("no agent %s was declared; `scheduler agents ls` lists them", ref))
	case 1:
		return one, nil
	}
	return one, usage(fmt.Errorf("%s is an agent of several tenants: name one of %s", ref, strings.Join(found, ", ")))
}

func printAgent(w io.Writer, d agentDetail) error {
	a, jobs, now := &d.Agent, d.Jobs, time.Now()
	p := &a.Profile
	for _, f := range []struct{ name, value string }{
		{"agent", string(p.Name)}, {"tenant", string(a.Tenant)}, {"declared", clock(a.Since, now)}, {"worker", string(p.Worker)}, {"model", p.Model},
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
