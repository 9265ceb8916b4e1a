package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// maxCompletions is how many of the newest jobs a shell is offered.
const maxCompletions = 100

// completion offers words, each with a tab and what it means behind it if there is
// something to say. It is silent about all that goes wrong: a shell would print it
// into the command line.
type completion func(ctx context.Context, at *target) []string

// fixed offers words that are always the same.
func fixed[T ~string](words ...T) completion {
	return func(context.Context, *target) []string { return wordsOf(words) }
}

// argCompletions say what the arguments of a command are, by the first such word in
// its Use or, before that, by the command.
var argCompletions = map[string]completion{
	"JOB":      jobsWhere(client.ListQuery{}),
	"PIPELINE": wordOf(func(r *peer, ctx context.Context) ([]api.Pipeline, error) { return r.Pipelines(ctx, "") }, func(p *api.Pipeline) string { return string(p.ID) }),
	"SCOPE":    scopes,
	"NODE":     wordOf(func(r *peer, ctx context.Context) ([]api.FleetNode, error) { return r.Nodes(ctx) }, func(n *api.FleetNode) string { return n.Name + "\t" + n.State }),
	"REPORT":   crashReports,
	"TENANT":   tenantNames,
	"SUBJECT": wordOf(func(r *peer, ctx context.Context) ([]api.Reputation, error) {
		return r.Reputations(ctx, client.ReputationQuery{})
	}, func(r *api.Reputation) string { return r.Subject.Name }),

	"agents show":     agentNames,
	"install-workers": func(_ context.Context, at *target) []string { return wordsOf(at.prog.packages().Kinds()) },

	"cancel":         jobsWhere(client.ListQuery{States: []job.EntryState{job.Queued, job.Dispatched}}),
	"wait":           jobsWhere(client.ListQuery{States: []job.EntryState{job.Queued, job.Dispatched}}),
	"checkpoint":     jobsWhere(client.ListQuery{States: []job.EntryState{job.Dispatched}}),
	"retry":          jobsWhere(client.ListQuery{States: []job.EntryState{job.Completed, job.Cancelled, job.Expired}}),
	"approve":        jobsWhere(client.ListQuery{Status: []job.RunState{job.WaitingApproval}}),
	"reject":         jobsWhere(client.ListQuery{Status: []job.RunState{job.WaitingApproval}}),
	"approvals show": jobsWhere(client.ListQuery{Status: []job.RunState{job.WaitingApproval}}),
	"dlq show":       jobsWhere(client.ListQuery{DeadLetters: true}),
	"dlq requeue":    jobsWhere(client.ListQuery{DeadLetters: true}),
	"dlq edit":       jobsWhere(client.ListQuery{DeadLetters: true}),
	"dlq drop":       jobsWhere(client.ListQuery{DeadLetters: true}),
	"replay":         jobsOrBatches,
}

// flagCompletions say what the values of flags are, by the flag's name or, before
// that, by the command and the flag.
var flagCompletions = map[string]completion{
	"tenant":       tenantNames,
	"worker":       workerNames,
	"on":           workerNames,
	"agent":        agentNames,
	"batch":        batchIDs,
	"color":        fixed(colourAuto, colourAlways, colourNever),
	"log-level":    fixed("debug", "info", "warn", "error"),
	"status":       func(context.Context, *target) []string { return statusWords() },
	"class":        func(context.Context, *target) []string { return wordsOf(job.Classes()) },
	"role":         func(context.Context, *target) []string { return roles },
	"isolation":    fixed(job.Worktree, job.Copy, job.Direct, job.NoWorkspace),
	"on-duplicate": fixed("coalesce", "latest_wins", "reject", "serialize"),
	"capabilities": func(context.Context, *target) []string { return wordsOf(job.Capabilities()) },
	"by":           func(context.Context, *target) []string { return wordsOf(queue.Dimensions()) },
	"kind":         fixed(eval.Worker, eval.Agent, eval.Tenant),
	"policy":       func(_ context.Context, at *target) []string { return at.prog.policyNames() },

	" --state":            nil, // of all commands: a folder
	"nodes drain --mode":  fixed(api.DrainModes()...),
	"dlq ls --class":      errorClasses,
	"dlq requeue --class": errorClasses,
	"evaluate --by":       nil,
	"approve --by":        nil,
	"reject --by":         nil,
}

var (
	tenantNames = wordOf((*peer).Tenants, func(t *api.Tenant) string { return string(t.Tenant) })
	agentNames  = wordOf(func(r *peer, ctx context.Context) ([]api.Agent, error) { return r.Agents(ctx) }, func(a *api.Agent) string {
		return string(a.Profile.Name) + "\t" + terminal.Clean("of "+string(a.Tenant))
	})
)

// addCompletions lets the shell complete a command's arguments and flags.
func (at *target) addCompletions(cmd *cobra.Command) {
	name := commandName(cmd)
	if c, ok := completionOf(cmd); ok && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = at.offer(c, strings.Contains(cmd.Use, "..."))
	}
	add := func(f *pflag.Flag) {
		c, own := flagCompletions[name+" --"+f.Name]
		if !own {
			c = flagCompletions[f.Name]
		}
		if c == nil || f.Value.Type() == "bool" {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, at.offer(c, true)) // it is registered already
	}
	cmd.LocalFlags().VisitAll(add)
}

// completionOf returns what completes the arguments of a command.
func completionOf(cmd *cobra.Command) (completion, bool) {
	if c, ok := argCompletions[commandName(cmd)]; ok {
		return c, true
	}
	for _, word := range strings.FieldsFunc(cmd.Use, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		if c, ok := argCompletions[word]; ok {
			return c, true
		}
	}
	return nil, false
}

// offer makes a function of cobra's. What was given already is not offered again,
// and nothing is where one argument is enough.
func (at *target) offer(c completion, many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !many && len(args) > 0 || at.server != "" || at.con.getenv(serverVariable) != "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx := cmd.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		var list []cobra.Completion
		for _, word := range c(ctx, at) {
			text, _, _ := strings.Cut(word, "\t")
			if strings.HasPrefix(text, begin) && !slices.Contains(args, text) && !slices.Contains(list, word) {
				list = append(list, word)
			}
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// offered returns the words that f makes of what is read, none if that fails.
func (at *target) offered(f func(*peer) ([]string, error)) (words []string) {
	at.do(func(r *peer) (err error) { //nolint:errcheck // see completion
		words, err = f(r)
		return err
	})
	return words
}

// jobsWhere offers the newest jobs that q selects: their names, and the ids of
// those whose name stands for a newer one.
func jobsWhere(q client.ListQuery) completion {
	q.Newest, q.Limit = true, maxCompletions
	return func(ctx context.Context, at *target) []string {
		return at.offered(func(r *peer) (words []string, err error) {
			list, err := r.List(ctx, q)
			seen := map[job.Name]bool{}
			for i := range list.Jobs {
				e := &list.Jobs[i]
				text := string(e.Spec.Name)
				if seen[e.Spec.Name] {
					text = string(e.ID)
				}
				seen[e.Spec.Name] = true
				words = append(words, text+"\t"+terminal.Clean(stateWord(e)+" on "+string(workerOf(e))+" "+string(e.Spec.Tenant)))
			}
			return words, err
		})
	}
}

func jobsOrBatches(ctx context.Context, at *target) []string {
	return append(jobsWhere(client.ListQuery{})(ctx, at), batchIDs(ctx, at)...)
}

func batchIDs(ctx context.Context, at *target) []string {
	return at.offered(func(p *peer) (words []string, err error) {
		list, err := p.Workflows(ctx, maxCompletions)
		for _, b := range list {
			words = append(words, string(b.Batch)+"\t"+terminal.Clean(filepath.Base(firstLine(b.Source))))
		}
		return words, err
	})
}

// wordOf returns what offers a word for each element of a list that is read.
func wordOf[T any](list func(*peer, context.Context) ([]T, error), word func(*T) string) completion {
	return func(ctx context.Context, at *target) []string {
		return at.offered(func(r *peer) (words []string, err error) {
			all, err := list(r, ctx)
			for i := range all {
				words = append(words, word(&all[i]))
			}
			return words, err
		})
	}
}

func workerNames(_ context.Context, at *target) []string {
	cfg, err := at.prog.readConfig(at.prog.configOptions())
	if err != nil {
		return at.prog.adapterNames()
	}
	return at.prog.workerKinds(&cfg)
}

// scopes offers what is isolated, and what could be paused.
func scopes(ctx context.Context, at *target) []string {
	words := []string{string(isolation.Global)}
	for _, kind := range workerNames(ctx, at) {
		words = append(words, string(isolation.WorkerScope(job.WorkerKind(kind))))
	}
	return append(words, at.offered(func(p *peer) (words []string, err error) {
		st, err := p.Status(ctx)
		for _, i := range st.Isolations {
			words = append(words, i.Scope+"\t"+terminal.Clean("isolated: "+firstLine(i.Message)))
		}
		return words, err
	})...)
}

func crashReports(_ context.Context, at *target) []string {
	words := []string{supervisor.Latest}
	if dir, err := at.local.existing(); err == nil {
		all, _ := supervisor.Reports(dir.Crashes())
		for i := range all {
			words = append(words, string(all[i].ID))
		}
	}
	return words
}

func errorClasses(context.Context, *target) []string { return wordsOf(job.ErrorClasses()) }

// describeCompletion says how completions are set up, in the words of the rest.
func describeCompletion(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return
	}
	cmd.Short = "Print the script that completes commands, jobs and flags in a shell"
	cmd.Long = `Print the script that lets a shell complete the commands and flags of scheduler, and what is
in its state directory: jobs, tenants, agents, pipelines, workers, scopes.

  bash   scheduler completion bash > ~/.local/share/bash-completion/completions/scheduler
  zsh    scheduler completion zsh > "${fpath[1]}/_scheduler"
  fish   scheduler completion fish > ~/.config/fish/completions/scheduler.fish`
	cmd.Example = "  source <(scheduler completion bash)"
	// One that cannot run would print its help for any word.
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, sub := range cmd.Commands() {
		sub.Short = "Print the script for " + sub.Name()
		sub.Example = "  scheduler completion " + sub.Name()
	}
}
