package gateway

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
	"github.com/agentsched/agentsched/worker/claude"
	"github.com/agentsched/agentsched/worker/codex"
	"github.com/agentsched/agentsched/worker/opencode"
)

// adapters are those whose programs ask models.
func adapters() map[string]worker.Adapter {
	return map[string]worker.Adapter{"codex": codex.Adapter{}, "claude": claude.Adapter{}, "opencode": opencode.Adapter{}}
}

// cli returns the path of a worker CLI at its pinned version. Without it the test is skipped, but where CI or
// AGENTSCHED_REQUIRE_WORKERS says that it must be there, it fails.
func cli(t *testing.T, kind job.WorkerKind) string {
	t.Helper()
	dir := os.Getenv("AGENTSCHED_TEST_WORKERS")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs(filepath.Join("..", "..", ".cache", "workers")); err != nil {
			t.Fatal(err)
		}
	}
	if path := agentcli.CatalogOf(adapters()).Find(dir, []job.WorkerKind{kind})[kind]; path != "" {
		return path
	}
	miss := fmt.Sprintf("%s is not in %s: `go run ./cmd/scheduler install-workers --dir .cache/workers` installs it, AGENTSCHED_TEST_WORKERS names another folder", kind, dir)
	if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_WORKERS") != "" {
		t.Fatal(miss)
	}
	t.Skip(miss)
	return ""
}

// realRig is a scripted model behind a gateway, and a real CLI that gets the endpoint of a run.
type realRig struct {
	*rig
	model *scriptmodel.Server
	host  *proc.Host
	kind  job.WorkerKind
	dir   string

	traced sync.Mutex
	keys   map[string]int // that the provider was given, in either header
}

func newRealRig(t *testing.T, host *proc.Host, kind job.WorkerKind, change func(*Config, *RunConfig)) *realRig {
	t.Helper()
	r := &realRig{host: host, kind: kind, dir: t.TempDir(), keys: map[string]int{}}
	var err error
	r.model, err = scriptmodel.New(scriptmodel.Options{Trace: func(_ string, h http.Header, _ []byte) {
		r.traced.Lock()
		defer r.traced.Unlock()
		r.keys[h.Get("X-Api-Key")+strings.TrimPrefix(h.Get("Authorization"), "Bearer ")]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.model.Close() })
	r.rig = newRig(t, http.NotFound, func(c *Config, run *RunConfig) {
		c.Providers[0].BaseURL = r.model.URL() + "/v1"
		run.Models = []string{"m"}
		change(c, run)
	})
	return r
}

// run has the CLI do a job, as its adapter starts it, with the run's key.
func (r *realRig) run() job.Outcome {
	r.t.Helper()
	t := r.t.(*testing.T)
	for _, d := range []string{"work", "home", "scratch", "user", "tmp", "logs"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	work := filepath.Join(r.dir, "work")
	var out strings.Builder
	git := exec.Command("git", "init", "-q", work)
	git.Stdout, git.Stderr = &out, &out
	if err := r.host.Run(t.Context(), git); err != nil { // whose reaper would take it for an orphan
		t.Fatalf("git init: %v\n%s", err, out.String())
	}
	url := r.endpoint.URL
	if r.kind != "claude" {
		url += "/v1"
	}
	adapter := adapters()[string(r.kind)]
	session, err := adapter.Start(&worker.Task{
		Job: "j", Name: "j", Attempt: 1, Kind: r.kind, Model: "m", Instructions: "Do it.",
		Dir: work, Home: filepath.Join(r.dir, "home"), Scratch: filepath.Join(r.dir, "scratch"),
		Capabilities: []job.Capability{job.CanEdit, job.CanRunCommands},
		Environ:      []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(r.dir, "user"), "TMPDIR=" + filepath.Join(r.dir, "tmp"), "LANG=C.UTF-8"},
		Lookup: func(name string) (string, bool) {
			if name == "RUN_KEY" {
				return r.session.Key(), true
			}
			return "", false
		},
		Settings: job.WorkerSettings{Adapter: string(r.kind), Command: []string{cli(t, r.kind)}, BaseURL: url, KeyEnv: "RUN_KEY"},
	})
	if err != nil {
		t.Fatal(err)
	}
	runner := worker.Runner{Host: r.host, Stages: proc.Stages{Interrupt: 5 * time.Second, Terminate: 5 * time.Second, Kill: time.Minute}, Log: zerolog.Nop()}
	o, err := runner.Run(t.Context(), session, worker.Run{Tag: "gateway-test/" + string(r.kind) + "/1", Model: "m", LogDir: filepath.Join(r.dir, "logs"), Sink: func(job.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// fail shows what the run has said.
func (r *realRig) fail(format string, values ...any) {
	r.t.Helper()
	var logs strings.Builder
	for _, name := range []string{"stdout.log", "stderr.log"} {
		text, _ := os.ReadFile(filepath.Join(r.dir, "logs", name))
		fmt.Fprintf(&logs, "\n%s: %s", name, text[max(0, len(text)-4000):])
	}
	r.t.Fatalf(format+"%s", append(values, logs.String())...)
}

// secretFree checks that nothing that the run could write holds the real key.
func (r *realRig) secretFree() {
	r.t.Helper()
	_ = filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if text, _ := os.ReadFile(path); strings.Contains(string(text), realKey) {
				r.t.Errorf("%s holds the provider's key", path)
			}
		}
		return nil
	})
}

// TestReal: the three CLIs work with the key of a run at the gateway. It is charged what the model says, and the provider alone
// sees the real key.
func TestReal(t *testing.T) {
	host, err := proc.NewHost(proc.Config{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, kind := range []job.WorkerKind{"codex", "claude", "opencode"} {
		t.Run(string(kind), func(t *testing.T) {
			cli(t, kind)
			t.Run("works", func(t *testing.T) { realWorks(t, host, kind) })
			if kind == "opencode" {
				testrun.Long(t, "a start of OpenCode computes for five seconds; otherwise done with the others")
			}
			t.Run("budget", func(t *testing.T) { realBudget(t, host, kind) })
			t.Run("model", func(t *testing.T) { realModel(t, host, kind) })
		})
	}
}

func realWorks(t *testing.T, host *proc.Host, kind job.WorkerKind) {
	r := newRealRig(t, host, kind, func(*Config, *RunConfig) {})
	r.model.Handle("m", scriptmodel.Play(scriptmodel.Edit("made.txt", "hello"), scriptmodel.Say("All done.")))
	o := r.run()
	if !o.Succeeded() || o.Answer != "All done." {
		r.fail("outcome %+v", o)
	}
	if text, err := os.ReadFile(filepath.Join(r.dir, "work", "made.txt")); string(text) != "hello" {
		r.fail("the file holds %q (%v)", text, err)
	}
	if len(r.keys) != 1 || r.keys[realKey] == 0 {
		t.Errorf("the provider was given the keys %v", r.keys)
	}
	r.secretFree()
	// Each answer of the script is of 120 tokens in, 20 of them cached, and 30 out.
	n := int64(len(r.model.Requests()))
	want := job.Usage{InputTokens: 120 * n, CachedTokens: 20 * n, OutputTokens: 30 * n, CostUSD: float64(n) * 240e-6, CostKnown: true}
	u, estimated, _ := r.total()
	if !near(u, want) || estimated {
		t.Errorf("charged %+v (estimated: %v), want %+v of %d answers", u, estimated, want, n)
	}
	if o.Usage.Tokens() > u.Tokens() || o.Usage.Tokens() < 300 {
		t.Errorf("the adapter counts %+v, the gateway %+v", o.Usage, u)
	}
	if tokens, usd := r.spent(); tokens != want.Tokens() || !near(job.Usage{CostUSD: usd}, job.Usage{CostUSD: want.CostUSD}) {
		t.Errorf("spent %d tokens and %f US dollars, want %+v", tokens, usd, want)
	}
	t.Logf("%d requests, denied: %q", n, r.denied)
}

// realBudget: a run that has used up its budget is refused, and ends instead of trying again.
func realBudget(t *testing.T, host *proc.Host, kind job.WorkerKind) {
	r := newRealRig(t, host, kind, func(_ *Config, run *RunConfig) { _, run.Permit = granted(t, job.Limits{MaxTokens: 60_000}) })
	dear := scriptmodel.Run("true").Costing(scriptmodel.Usage{Input: 60_000, Output: 2000})
	r.model.Handle("m", scriptmodel.Play(dear, dear, dear, scriptmodel.Say("All done.")))
	o := r.run()
	if o.Succeeded() {
		r.fail("outcome %+v", o)
	}
	if len(r.over) == 0 || r.over[0].Limit != permit.LimitTokens {
		t.Errorf("exceeded: %v", r.over)
	}
	main := slices.DeleteFunc(r.model.Requests(), func(q scriptmodel.Request) bool { return q.Side })
	if len(main) != 1 {
		t.Errorf("%d requests were answered, want 1", len(main))
	}
	t.Logf("%s: %s (refused %d times)", o.Class, o.Message, len(r.over))
}

// realModel: how a model that the run may not use looks to the CLI.
func realModel(t *testing.T, host *proc.Host, kind job.WorkerKind) {
	r := newRealRig(t, host, kind, func(_ *Config, run *RunConfig) { run.Models = []string{"another"} })
	o := r.run()
	if o.Succeeded() || len(r.model.Requests()) > 0 || !slices.Contains(r.denied, "model m") {
		r.fail("outcome %+v, denied %q", o, r.denied)
	}
	t.Logf("%s: %s", o.Class, o.Message)
}
