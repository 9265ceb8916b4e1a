package scheduler

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

var childName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$`)

// maxChildWords bounds what a child is told, in bytes.
const maxChildWords = 64 << 10

// specOf returns what a child is to do, or why it cannot be submitted. It has what its lead has, and no more: what its lead
// says can only take away.
func (s *Children) specOf(lead *queue.Entry, r *ipc.SubmitChild, have int, ceded ipc.Ceded) (job.Spec, error) {
	in, of, b := &r.Child, &lead.Spec, s.bounds()
	switch {
	case of.Lead.Depth >= b.Depth && b.Depth == 0:
		return job.Spec{}, fmt.Errorf("agents may submit no jobs here (children.max_depth of the configuration)")
	case of.Lead.Depth >= b.Depth:
		return job.Spec{}, fmt.Errorf("your job is %d levels below one that a person has submitted, and may submit none itself; at most %d levels are allowed", of.Lead.Depth, b.Depth)
	case have >= b.Each:
		return job.Spec{}, fmt.Errorf("you have submitted %d jobs, which is the maximum", have)
	case !childName.MatchString(in.Name):
		return job.Spec{}, fmt.Errorf("name is %.100q, want 1 to 32 of a-z A-Z 0-9 and, not first, _ -", in.Name)
	case strings.TrimSpace(in.Instructions) == "":
		return job.Spec{}, fmt.Errorf("instructions must not be empty: say what the worker should do")
	case len(in.Instructions)+len(in.Output) > maxChildWords:
		return job.Spec{}, fmt.Errorf("instructions and output have %d bytes, at most %d are allowed; put long material into a file that is committed", len(in.Instructions)+len(in.Output), maxChildWords)
	}
	c := job.Spec{
		Name: nameOfChild(of.Name, in.Name), Tenant: of.Tenant, Type: of.Type, Worker: of.Worker, Model: of.Model, Fallback: of.Fallback,
		Workspace: of.Workspace, Node: of.Node, Instructions: in.Instructions, SystemPrompt: of.SystemPrompt,
		Env: of.Env, Sandbox: of.Sandbox, Git: of.Git, Ask: of.Ask, Priority: of.Priority, Class: of.Class, Deadline: of.Deadline, Output: in.Output,
		Agent: of.Agent, Trigger: of.Trigger, Domain: of.Domain, Expect: of.Expect, Trace: of.Trace, Context: of.Context,
		Flow: job.Flow{Joined: of.Flow.Joined}, Lead: job.Lead{Job: lead.ID, Depth: of.Lead.Depth + 1},
	}
	if c.Workspace.Isolation == job.Direct { // which is its lead's alone
		c.Workspace.Isolation = job.Worktree
	}
	var err error
	if c.Capabilities, err = part("capabilities", asCapabilities(in.Capabilities), of.Capabilities, job.CanUseScheduler); err != nil {
		return job.Spec{}, err
	}
	commands := in.AllowCommands
	if of.Can(job.CanRunCommands) && len(of.AllowCommands) == 0 || len(commands) == 0 { // any command is as good as another
		c.AllowCommands = commands
		if len(commands) == 0 {
			c.AllowCommands = of.AllowCommands
		}
	} else if c.AllowCommands, err = part("allow_commands", commands, of.AllowCommands); err != nil {
		return job.Spec{}, err
	}
	if c.Network, err = childNetwork(in.Network, of, c.Can(job.CanUseNetwork)); err != nil {
		return job.Spec{}, err
	}
	if c.Secrets, err = part("secrets", in.Secrets, of.Secrets); err != nil {
		return job.Spec{}, err
	}
	if err := s.chooseWorker(&c, in.Worker, of, b.Workers); err != nil {
		return job.Spec{}, err
	}
	if c.Limits, err = limitsOf(&of.Limits, r, ceded, lead.Spent); err != nil {
		return job.Spec{}, err
	}
	if errs := c.Validate(); len(errs) > 0 {
		return job.Spec{}, fmt.Errorf("%s: %s", errs[0].Field, errs[0].Message)
	}
	return c, nil
}

// nameOfChild returns what the job is called that an agent calls name. It fits into 64 characters.
func nameOfChild(lead job.Name, name string) job.Name {
	of := strings.NewReplacer("@", "-", "+", "-").Replace(string(lead)) // of parts and of what was restarted
	return job.Name(of[:min(len(of), 63-len(name))] + "." + name)
}

func asCapabilities(list []string) (out []job.Capability) {
	for _, c := range list {
		out = append(out, job.Capability(c))
	}
	return out
}

// part returns what is asked for, which must be a part of what there is; all but without, if nothing is asked for.
func part[T ~string](field string, asked, has []T, without ...T) ([]T, error) {
	if len(asked) == 0 {
		return slices.DeleteFunc(slices.Clone(has), func(x T) bool { return slices.Contains(without, x) }), nil
	}
	for _, x := range asked {
		if !slices.Contains(has, x) {
			return nil, fmt.Errorf("%s has %.100q, which your own job has not; it has %.1000q", field, x, has)
		}
	}
	return asked, nil
}

// childNetwork returns the hosts that a child may reach; any says whether it has the capability to reach all.
func childNetwork(asked []string, of *job.Spec, any bool) ([]string, error) {
	switch {
	case any && len(asked) > 0:
		return nil, fmt.Errorf("network and the capability network are both given; the capability means all hosts: leave one out")
	case any:
		return nil, nil
	case of.HasFullNetwork() && len(asked) == 0 && of.Can(job.CanUseNetwork): // the child gave up the capability
		return nil, nil
	case of.HasFullNetwork() && len(asked) > 0, slices.Equal(asked, []string{job.NetworkNone}):
		return asked, nil
	}
	return part("network", asked, of.Network)
}

// chooseWorker has the child run on what its lead asks for: a worker of the lead's own job, or one that the configuration allows.
func (s *Children) chooseWorker(c *job.Spec, asked string, of *job.Spec, more []job.WorkerKind) error {
	if asked == "" {
		return nil
	}
	kind, model, _ := strings.Cut(asked, ":")
	var kinds []job.WorkerKind
	for _, choice := range of.Choices() {
		if choice.Worker == job.WorkerKind(kind) && (model == "" || model == choice.Model) {
			c.Worker, c.Model, c.Fallback = choice.Worker, choice.Model, nil
			return nil
		}
		kinds = append(kinds, choice.Worker)
	}
	if !slices.Contains(more, job.WorkerKind(kind)) || model != "" {
		return fmt.Errorf("worker is %.100q, want one of %q", asked, slices.Compact(append(kinds, more...)))
	}
	if c.Worker, c.Model, c.Fallback = job.WorkerKind(kind), "", nil; c.Worker != job.ShellWorker {
		c.Type = job.WorkerTask
	}
	return nil
}

// limitsOf returns the limits of a child. What it may spend the core has set apart of what its lead has left; here it is
// checked by what is stored.
func limitsOf(of *job.Limits, r *ipc.SubmitChild, ceded ipc.Ceded, spent job.Usage) (job.Limits, error) {
	l := *of
	l.RetryBudget.CostUSD = 0
	l.MaxTokens, l.MaxCostUSD = r.Budget.Tokens, r.Budget.CostUSD
	tokens, cost := of.MaxTokens, of.MaxCostUSD
	if b := of.RetryBudget.CostUSD; b > 0 && (cost == 0 || b < cost) {
		cost = b
	}
	switch {
	case l.MaxTokens < 0 || l.MaxCostUSD < 0:
		return l, fmt.Errorf("a budget is below zero")
	case tokens > 0 && (l.MaxTokens == 0 || l.MaxTokens > tokens-spent.Tokens()-ceded.Tokens):
		return l, fmt.Errorf("%d tokens are more than your job has left of its max_tokens of %d", l.MaxTokens, tokens)
	case cost > 0 && (l.MaxCostUSD == 0 || l.MaxCostUSD > cost-spent.CostUSD-ceded.CostUSD+1e-9):
		return l, fmt.Errorf("%.4f US dollars are more than your job has left of its limit of %.4f", l.MaxCostUSD, cost)
	case r.Child.Timeout < 0 || r.Child.Timeout > l.Timeout && l.Timeout > 0:
		return l, fmt.Errorf("timeout is %s, want at most that of your own job, %s", r.Child.Timeout, l.Timeout)
	case r.Child.Timeout > 0:
		l.Timeout = r.Child.Timeout
	}
	return l, nil
}
