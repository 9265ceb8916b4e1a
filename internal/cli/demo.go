package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/worker/agentcli"
)

// demoKey is the variable that holds the key for the scripted model; any will do.
const demoKey = "AGENTSCHED_DEMO_KEY"

// demoJobs are the jobs of the demonstration: one file a tenant.
var demoJobs = []string{`
tenant: website
jobs:
  - {id: greet-visitors, worker: codex, model: demo-edit, workspace: {path: .}, instructions: Write a greeting for visitors.}
  - {id: long-refactor, worker: claude, model: demo-long, workspace: {path: .}, instructions: Refactor the site in two steps.}
  - {id: write-docs, worker: opencode, model: demo-docs, workspace: {path: .}, instructions: Document the site.}
`, `
tenant: backend
jobs:
  - {id: busy-provider, worker: codex, model: demo-busy, workspace: {path: .}, instructions: Add a health check.}
  - {id: checked-fix, worker: claude, model: demo-fix, workspace: {path: .}, instructions: Fix the answer., verify: grep -q 42 answer.txt}
  - {id: leaves-a-daemon, worker: opencode, model: demo-daemon, workspace: {path: .}, instructions: Start the development server.}
`}

// demoScripts are what the scripted model plays for the jobs' models.
func demoScripts() map[string]scriptmodel.Script {
	busy := scriptmodel.Play(scriptmodel.Edit("health.txt", "healthy\n"), scriptmodel.Say("The health check is there."))
	long := scriptmodel.Play(
		scriptmodel.Edit("step-1.txt", "the first step\n"),
		scriptmodel.Run("sleep 600"),
		scriptmodel.Say("This is never reached: the core is killed while the command runs."))
	return map[string]scriptmodel.Script{
		"demo-edit":   scriptmodel.Play(scriptmodel.Edit("greeting.txt", "Welcome!\n"), scriptmodel.Run("git status --short"), scriptmodel.Say("Visitors are greeted.")),
		"demo-docs":   scriptmodel.Play(scriptmodel.Edit("DOCS.md", "# The site\n\nIt greets its visitors.\n"), scriptmodel.Say("The site is documented.")),
		"demo-busy":   busy.FailingFirst(1, scriptmodel.Status(429, 2*time.Second)),
		"demo-long":   long.Resuming(scriptmodel.Edit("step-2.txt", "the second step, after the resumption\n"), scriptmodel.Say("Both steps are done.")),
		"demo-fix":    scriptmodel.Play(scriptmodel.Edit("answer.txt", "The answer is 42.\n"), scriptmodel.Say("The answer is fixed.")),
		"demo-daemon": scriptmodel.Play(scriptmodel.Daemonise(10*time.Minute), scriptmodel.Say("The server runs.")),
	}
}

// demoShown says in a line each what the demonstration has shown.
var demoShown = []string{
	"Six jobs of two tenants ran on the three real CLIs, each in a git worktree of its own; the repository itself was not touched.",
	"busy-provider: the provider answered 429 (too many requests); the job waited and was tried again.",
	"long-refactor: the core was killed (SIGKILL) while this job's command ran. What the core left was ended first; then a new core resumed the agent's own session, so step 1 was not done twice.",
	"checked-fix: counted as done only after its verify command had passed.",
	"leaves-a-daemon: the agent left a process behind that had detached itself; it was found and ended before the result counted.",
	"No key, no account, no network: the model was a script on loopback. The CLIs, the processes and the patches were real.",
}

func demoCommand(con *console, prog *program, local *local, runs *runner) *cobra.Command {
	var yes bool
	var dir string
	var o runOptions
	cmd := &cobra.Command{
		Use: "demo", Short: "Show what this does, on the three real CLIs and a scripted model: no key, no account", Args: cobra.NoArgs,
		Long: `Show what this does: six jobs of two tenants run on the three real CLIs, whose model is a
script on loopback, so that it needs no key, no account and no network. One of the jobs is
refused by its provider at first, one loses the core that it runs on, one leaves a process
behind; in the end it is said what became of each. It takes a minute; missing CLIs are
installed from npm, if you agree. What it makes lies in the user's cache folder.`,
		Example: "  scheduler demo\n  scheduler demo --yes --plain",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), con, prog, local, runs, dir, yes, o)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "install missing CLIs without asking")
	runs.con.jsonFlag(cmd, "print everything that happens as JSON Lines")
	cmd.Flags().BoolVar(&o.plain, "plain", false, "print plain lines, also on a terminal")
	cmd.Flags().StringVar(&dir, "workers", "", "`DIR`ectory that the CLIs are installed in (default: the user's cache folder)")
	return cmd
}

func demo(ctx context.Context, con *console, prog *program, local *local, runs *runner, dir string, yes bool, o runOptions) error {
	programs, err := demoWorkers(ctx, con, prog, dir, yes)
	if err != nil {
		return err
	}
	place, err := demoPlace()
	if err != nil {
		return failure(err)
	}
	model, err := scriptmodel.New(scriptmodel.Options{})
	if err != nil {
		return failure(err)
	}
	defer model.Close()
	cfg := config.Default()
	cfg.Concurrency.Max = 3
	cfg.Retry.Base = job.Duration(500 * time.Millisecond)
	for name, script := range demoScripts() {
		model.Handle(name, script)
		cfg.Prices[name] = job.Price{Input: 1, Output: 4}
	}
	for kind, path := range programs {
		w := cfg.Workers[kind]
		w.Command, w.BaseURL, w.KeyEnv = []string{path}, model.URL(), demoKey
		if kind != "claude" { // which adds the version to its endpoint by itself
			w.BaseURL += "/v1"
		}
		cfg.Workers[kind] = w
	}
	con.environ = append(con.environ, demoKey+"=key-of-the-scripted-model")
	local.stateDir = filepath.Join(place, "state")
	own, err := prog.loadConfig() // of which the demonstration takes alone whether runs need a sandbox
	if err != nil {
		return err
	}
	if err := local.consent(ctx, &own); err != nil {
		return err
	}
	if own.Sandbox.Level == job.SandboxNone {
		cfg.Sandbox.Level = job.SandboxNone
	}
	src, err := prog.demoSource(filepath.Join(place, "site"), &cfg)
	if err != nil {
		return err
	}
	if err := local.checkJobs(ctx, src.specs, &cfg, nil); err != nil {
		return err
	}
	state, err := local.own(ctx)
	if err != nil {
		return err
	}
	defer state.Close()
	batch, _, err := openBatch(ctx, state.store, src, false, func(list []queue.Entry) { local.submitted(ctx, state.dir, list) })
	if err != nil {
		return err
	}
	o.started = func(e *engine) error { killCoreOnce(e); return nil }
	con.started = time.Now() // the summary tells of the run, not of the question and the installation
	batches, ran := runs.runBatch(ctx, state, &cfg, batch, o)
	if err := runs.closeBatches(ctx, state, batches, o, ran); err != nil {
		return err
	}
	if ran != nil {
		return ran
	}
	if runs.con.json {
		return nil
	}
	return explain(ctx, con, state, batch, place)
}

// demoWorkers returns the CLIs' programs, installed if need be.
func demoWorkers(ctx context.Context, con *console, prog *program, dir string, yes bool) (agentcli.Installed, error) {
	if dir == "" {
		var err error
		if dir, err = agentcli.CacheDir(); err != nil {
			return nil, usage(err)
		}
	}
	kinds := []job.WorkerKind{"codex", "claude", "opencode"} // those of demoJobs
	found := prog.packages().Find(dir, kinds)
	var missing []job.WorkerKind
	for _, kind := range kinds {
		if found[kind] == "" {
			missing = append(missing, kind)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	what := fmt.Sprintf("%s to be installed from npm into %s: about %d MB", count(len(missing), "CLI"), dir, prog.packages().Size(missing...)/1e6)
	if !yes {
		if !con.canAsk() {
			return nil, usage(fmt.Errorf("the demo needs %s", what), "`scheduler demo --yes` installs without asking")
		}
		if !con.agree(fmt.Sprintf("The demo needs %s. Go on?", what)) {
			return nil, usage(errors.New("nothing was installed"))
		}
	}
	installed, err := prog.packages().Ensure(ctx, dir, kinds, func(line string) { fmt.Fprintln(con.stderr, line) })
	if err != nil {
		return nil, usage(err)
	}
	return installed, nil
}

// demoPlace makes a folder with a small git repository in it.
func demoPlace() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "agentsched")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	place, err := os.MkdirTemp(parent, "demo-")
	if err != nil {
		return "", err
	}
	site := filepath.Join(place, "site")
	if err := os.Mkdir(site, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(site, "answer.txt"), []byte("The answer is 41.\n"), 0o600); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "a small site"},
	} {
		cmd := exec.Command("git", append([]string{"-C", site}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("make a repository for the demo: git %s: %w: %s", args[0], err, out)
		}
	}
	return place, nil
}

func (prog *program) demoSource(site string, cfg *config.Config) (*source, error) {
	src := &source{name: "the demo in " + site}
	for _, text := range demoJobs {
		specs, err := jobfile.Decode("demo", []byte(text), jobfile.Options{Now: utcNow(), Workers: prog.workerKinds(cfg), Domains: domains(cfg), Grants: cfg.Grants, BaseDir: site})
		if err != nil {
			return nil, failure(err)
		}
		src.specs = append(src.specs, specs...)
	}
	return src, nil
}

// killCoreOnce kills the core with SIGKILL when long-refactor runs the command
// that it would never come back from and busy-provider has been through its
// rate limit: each shows one thing.
func killCoreOnce(e *engine) {
	updates, cancel := e.sched.Feed.Subscribe(64 << 10)
	go func() {
		defer cancel()
		asleep, served := false, false
		for {
			select {
			case <-e.ended:
				return
			case u := <-updates:
				asleep = asleep || u.Name == "long-refactor" && u.Event != nil && u.Event.Kind == job.EventCommand && strings.Contains(u.Event.Command, "sleep 600")
				served = served || u.Name == "busy-provider" && u.Kind == api.UpdateJob && u.State.Terminal()
				if !asleep || !served {
					continue
				}
				if pid := e.sched.CorePID(); pid != 0 {
					e.sched.Feed.Tell(fmt.Sprintf("the demo kills the agentcore (pid %d) with SIGKILL, in the middle of long-refactor", pid))
					syscall.Kill(pid, syscall.SIGKILL)
				}
				return
			}
		}
	}()
}

// explain prints the patches and what was shown.
func explain(ctx context.Context, con *console, state *owned, batch job.BatchID, place string) error {
	entries, _, err := state.store.List(ctx, queue.Filter{Batch: batch})
	if err != nil {
		return failure(err)
	}
	fmt.Fprintln(con.stdout, "\nThe patches:")
	for i := range entries {
		attempts, err := state.store.Attempts(ctx, entries[i].ID)
		if err != nil {
			return failure(err)
		}
		if patch := savedPatch(attempts, false); patch.Path != "" {
			fmt.Fprintf(con.stdout, "\n%s\n", entries[i].Spec.Name)
			if err := con.printPatch(patch, entries[i].Spec.Name); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(con.stdout, "\nWhat you have just seen:")
	for _, line := range demoShown {
		fmt.Fprintln(con.stdout, "- "+line)
	}
	fmt.Fprintf(con.stdout, "\nLook further: scheduler ls --state %s\nRemove it:   rm -r %s\n", filepath.Join(place, "state"), place)
	return nil
}
