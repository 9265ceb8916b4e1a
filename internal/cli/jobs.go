package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/worker"
)

// oneJob is a job given on the command line.
type oneJob struct {
	id, worker, model, workspace, isolation, base, verify, tenant string
	class, key, onDuplicate                                       string
	capabilities                                                  []string
	timeout                                                       time.Duration
	maxCost                                                       float64
}

func (o *oneJob) flags(f *pflag.FlagSet) {
	f.StringVar(&o.worker, "worker", "", "run one job, with the arguments as its instructions, on this `WORKER`")
	f.StringVar(&o.id, "id", "", "with --worker: the job's id (default: the worker's name)")
	f.StringVar(&o.model, "model", "", "with --worker: the model, as the worker's program calls it")
	f.StringVar(&o.workspace, "workspace", ".", "with --worker: the `DIR`ectory to work on")
	f.StringVar(&o.isolation, "isolation", "", "with --worker: worktree, copy, direct or none (default: worktree in a git repository, else copy)")
	f.StringVar(&o.base, "base", "", "with --worker: the commit, branch or tag that the worktree starts from")
	f.StringVar(&o.verify, "verify", "", "with --worker: a `COMMAND` that must exit 0 in the workspace afterwards")
	f.StringVar(&o.tenant, "tenant", "", "with --worker: in whose name the job runs")
	f.StringVar(&o.class, "class", "", "with --worker: interactive, standard or batch (default standard)")
	f.StringVar(&o.key, "key", "", "with --worker: what makes the job a duplicate of another")
	f.StringVar(&o.onDuplicate, "on-duplicate", "", "with --worker: coalesce, latest_wins, reject or serialize, if an unfinished job has the same key")
	f.StringSliceVar(&o.capabilities, "capabilities", nil, "with --worker: what the agent may do (default read,edit,run_commands)")
	f.DurationVar(&o.timeout, "timeout", 0, "with --worker: how long an attempt may take (default 30m)")
	f.Float64Var(&o.maxCost, "max-cost", 0, "with --worker: how much the job may cost, in US dollars")
}

// misplaced refuses flags of a job of the command line where there is none: with a job
// file they would do nothing, and a bound that does nothing costs money.
func (o *oneJob) misplaced(given *pflag.FlagSet) error {
	if o.worker != "" {
		return nil
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(oneJob).flags(own)
	var names []string
	given.Visit(func(f *pflag.Flag) {
		if own.Lookup(f.Name) != nil {
			names = append(names, "--"+f.Name)
		}
	})
	if len(names) == 0 {
		return nil
	}
	return usage(fmt.Errorf("%s: no use without --worker", strings.Join(names, ", ")), "a job file says it in a field: docs/job-file.md")
}

// commandLine is the name of the source of jobs given on the command line.
const commandLine = "command line"

// text is the job file that says the same as the flags.
func (o *oneJob) text(instructions string) ([]byte, error) {
	id := o.id
	if id == "" {
		id = o.worker
	}
	j := map[string]any{"id": id, "worker": o.worker, "instructions": instructions}
	set := func(name string, value any, given bool) {
		if given {
			j[name] = value
		}
	}
	set("model", o.model, o.model != "")
	set("verify", o.verify, o.verify != "")
	set("class", o.class, o.class != "")
	set("key", o.key, o.key != "")
	set("on_duplicate", o.onDuplicate, o.onDuplicate != "")
	set("capabilities", o.capabilities, len(o.capabilities) > 0)
	if o.isolation != string(job.NoWorkspace) {
		ws := map[string]any{"path": o.workspace}
		if o.isolation != "" {
			ws["isolation"] = o.isolation
		}
		if o.base != "" {
			ws["base"] = o.base
		}
		j["workspace"] = ws
	}
	limits := map[string]any{}
	if o.timeout != 0 {
		limits["timeout"] = o.timeout.String()
	}
	if o.maxCost != 0 {
		limits["max_cost_usd"] = o.maxCost
	}
	set("limits", limits, len(limits) > 0)
	file := map[string]any{"jobs": []any{j}}
	if o.tenant != "" {
		file["tenant"] = o.tenant
	}
	return json.Marshal(file)
}

// decode makes a job of the flags, by the same rules as a job file's.
func (o *oneJob) decode(instructions string, opts jobfile.Options) ([]job.Spec, error) {
	text, err := o.text(instructions)
	if err != nil {
		return nil, err
	}
	specs, err := jobfile.Decode(commandLine, text, opts)
	var all strictyaml.Errors
	if errors.As(err, &all) {
		// The positions would be those of a text that the user never wrote.
		lines := make([]string, len(all))
		for i, e := range all {
			lines[i] = strings.TrimPrefix(e.Path, "jobs[0].") + ": " + e.Message
		}
		return nil, errors.New(strings.Join(lines, "\n"))
	}
	return specs, err
}

// source is where the jobs of a run come from.
type source struct {
	name     string // absolute paths of the files, or the command line's folder
	specs    []job.Spec
	workflow job.Workflow
	resume   bool // no jobs were given: continue the newest unfinished batch
}

// digest identifies the jobs of a source. Times that are counted from now do
// not enter it: the same file read later holds the same jobs.
func (s *source) digest() (string, error) {
	specs := slices.Clone(s.specs)
	for i := range specs {
		specs[i].Deadline, specs[i].RunnableAt = nil, nil
	}
	text, err := json.Marshal(specs)
	if w, _ := json.Marshal(s.workflow); string(w) != "{}" {
		text = append(text, w...)
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// readJobs reads the jobs that the arguments name.
func (prog *program) readJobs(args []string, one oneJob, cfg *config.Config) (*source, error) {
	opts := jobfile.Options{Now: utcNow(), Workers: prog.workerKinds(cfg), Domains: domains(cfg), Grants: cfg.Grants}
	switch {
	case one.worker != "":
		specs, err := one.decode(strings.Join(args, " "), opts)
		if err != nil {
			return nil, usage(err)
		}
		dir, err := filepath.Abs(one.workspace)
		if err != nil {
			return nil, usage(err)
		}
		return &source{name: commandLine + " in " + dir, specs: specs}, nil
	case len(args) == 0:
		return &source{resume: true}, nil
	}
	paths := make([]string, len(args))
	for i, arg := range args {
		abs, err := filepath.Abs(arg)
		if err != nil {
			return nil, usage(err)
		}
		paths[i] = abs
	}
	jobs, err := jobfile.LoadJobs(args, opts)
	if err != nil {
		if len(args) == 1 && !strings.HasSuffix(args[0], ".yaml") && !strings.HasSuffix(args[0], ".yml") {
			if _, statErr := os.Stat(args[0]); statErr != nil {
				return nil, usage(err, "to run one job from the command line, name its worker: scheduler run --worker codex \"…\"")
			}
		}
		return nil, usage(err)
	}
	return &source{name: strings.Join(paths, "\n"), specs: jobs.Specs, workflow: jobs.Workflow}, nil
}

func (prog *program) adapterNames() []string { return slices.Sorted(maps.Keys(prog.adapters)) }

// adaptersThat returns the names of the adapters that have a trait.
func (prog *program) adaptersThat(have func(job.WorkerTraits) bool) (names []string) {
	for _, name := range prog.adapterNames() {
		if have(worker.TraitsOf(prog.adapters[name])) {
			names = append(names, name)
		}
	}
	return names
}

// traits returns what there is to know of a kind of worker.
func (prog *program) traits(cfg *config.Config, kind job.WorkerKind) job.WorkerTraits {
	return worker.AllTraits(prog.adapters)[cfg.AdapterOf(kind)]
}

// workerKinds lists the workers that a job may name: every adapter with a program
// of its own, and every kind of the configuration.
func (prog *program) workerKinds(cfg *config.Config) []string {
	kinds := map[string]bool{}
	for _, name := range prog.adaptersThat(func(t job.WorkerTraits) bool { return !t.NeedsCommand }) {
		kinds[name] = true
	}
	for kind := range cfg.Workers {
		kinds[string(kind)] = true
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if kinds[kind] {
			list = append(list, kind)
		}
	}
	return list
}

// domains lists those that a job may name: the built-in ones, those with a table or
// weights in the configuration.
func domains(cfg *config.Config) []string {
	all := map[string]bool{}
	for name := range eval.Table(cfg.Evaluation.Weights) {
		all[name] = true
	}
	for name := range policy.DefaultDomains() {
		all[name] = true
	}
	for name := range cfg.Recovery.Domains {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// checkJobs looks at what the host must have for the jobs to start: the
// workers' programs and the workspaces. It runs git with run.
func (local *local) checkJobs(ctx context.Context, specs []job.Spec, cfg *config.Config, run runCmd) error {
	if _, err := local.prog.coreProgram(); err != nil {
		return err
	}
	state, err := local.statePath()
	if err == nil {
		state, err = filepath.Abs(state)
	}
	if err != nil {
		return err
	}
	ws := workspace.New(workspace.Config{Exclude: []string{state}, Run: run})
	var errs []error
	told := map[string]bool{}
	tell := func(name job.Name, err error) {
		if err != nil && !told[err.Error()] {
			told[err.Error()] = true
			errs = append(errs, fmt.Errorf("job %s: %w", name, err))
		}
	}
	for i := range specs {
		s := &specs[i]
		if !s.Node.IsZero() || (!cfg.Fleet.Work || cfg.Fleet.Store != "") && !s.Workspace.OfHost() {
			continue // another host is to have that, or may
		}
		tell(s.Name, local.prog.locate(s.Worker, cfg))
		if s.Workspace.Isolation != job.NoWorkspace {
			tell(s.Name, ws.Check(ctx, s.Workspace))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	err = errors.Join(errs...)
	if errors.Is(err, worker.ErrNotInstalled) {
		return usage(err, "`scheduler install-workers` installs the agents' CLIs from npm; `scheduler doctor` tells what is there")
	}
	return usage(err)
}

// locate returns an error if the worker's program is not there.
func (prog *program) locate(kind job.WorkerKind, cfg *config.Config) error {
	settings := cfg.Workers[kind]
	name := settings.Adapter
	if name == "" {
		name = string(kind)
	}
	a := prog.adapters[name]
	if a == nil {
		return fmt.Errorf("no such worker: %s; there are %s", kind, strings.Join(prog.workerKinds(cfg), ", "))
	}
	_, err := a.Locate(settings)
	return err
}
