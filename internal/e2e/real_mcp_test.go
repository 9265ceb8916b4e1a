package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// personal is a worker CLI as a person has it on his own machine, who has it use the scheduler.
type personal struct {
	b        *bench
	program  string
	home     string
	model    *scriptmodel.Server
	mu       sync.Mutex // guards what follows
	requests bytes.Buffer
}

// personal installs a CLI for a person whose model plays a script, by the name play.
func (b *bench) personal(kind job.WorkerKind, script scriptmodel.Script) *personal {
	b.t.Helper()
	p := &personal{b: b, program: cli(b.t, kind), home: filepath.Join(b.dir, "person-"+string(kind))}
	var err error
	p.model, err = scriptmodel.New(scriptmodel.Options{Trace: func(_ string, _ http.Header, body []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests.Write(body)
	}})
	if err == nil {
		b.t.Cleanup(func() { p.model.Close() })
		p.model.Handle("play", script)
		err = os.MkdirAll(filepath.Join(p.home, ".codex"), 0o700)
	}
	if err != nil {
		b.fatalf("a person's %s: %v", kind, err)
	}
	return p
}

// heard returns all that the model was sent.
func (p *personal) heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests.String()
}

// run runs the CLI in the repository.
func (p *personal) run(env []string, args ...string) string {
	p.b.t.Helper()
	cmd := exec.CommandContext(p.b.t.Context(), p.program, args...)
	cmd.Dir = p.b.repo
	cmd.Env = append([]string{
		"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + p.home, "LANG=C.UTF-8", "AGENTSCHED_STATE=" + p.b.state,
		"MODEL_KEY=key", "ANTHROPIC_API_KEY=key", "ANTHROPIC_BASE_URL=" + p.model.URL(), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
	}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // what the CLI has left, if anything
	if err != nil {
		p.b.fatalf("%s %s: %v\n%s", filepath.Base(p.program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestRealMCP: Claude Code, Codex and OpenCode, set up as docs/mcp.md says, list the tools and call them, by stdio and by HTTP.
func TestRealMCP(t *testing.T) {
	const tokenVariable = "SCHEDULER_TOKEN"
	set := map[job.WorkerKind]func(p *personal, way, base, token string){
		"claude": func(p *personal, way, base, token string) {
			add := []string{"mcp", "add", "scheduler", "--", "scheduler", "mcp", "--state", p.b.state}
			if way == "http" {
				add = []string{"mcp", "add", "--transport", "http", "scheduler", base + "/mcp", "--header", "Authorization: Bearer " + token}
			}
			p.run(nil, add...)
			p.run(nil, "-p", "Look at the jobs.", "--model", "play", "--allowedTools", "mcp__scheduler__list_jobs,mcp__scheduler__submit_job,mcp__scheduler__wait_jobs")
		},
		"codex": func(p *personal, way, base, token string) {
			p.b.write(filepath.Join(p.home, ".codex", "config.toml"), fmt.Sprintf("model = \"play\"\nmodel_provider = \"script\"\ncheck_for_update_on_startup = false\n[analytics]\nenabled = false\n"+
				"[model_providers.script]\nname = \"script\"\nbase_url = %q\nwire_api = \"responses\"\nenv_key = \"MODEL_KEY\"\n", p.model.URL()+"/v1"))
			add := []string{"mcp", "add", "scheduler", "--", filepath.Join(programs, "scheduler"), "mcp", "--state", p.b.state}
			if way == "http" {
				add = []string{"mcp", "add", "scheduler", "--url", base + "/mcp", "--bearer-token-env-var", tokenVariable}
			}
			env := []string{tokenVariable + "=" + token}
			p.run(env, add...)
			p.run(env, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Look at the jobs.")
		},
		"opencode": func(p *personal, way, base, token string) {
			server := obj{"type": "local", "command": []string{"scheduler", "mcp", "--state", p.b.state}}
			if way == "http" {
				server = obj{"type": "remote", "url": base + "/mcp", "headers": obj{"Authorization": "Bearer {env:" + tokenVariable + "}"}, "oauth": false}
			}
			file := filepath.Join(p.home, "opencode.json")
			p.b.write(file, asJSON(p.b.t, obj{"mcp": obj{"scheduler": server}, "share": "disabled", "small_model": "script/play",
				"provider": obj{"script": obj{"npm": "@ai-sdk/openai-compatible", "options": obj{"baseURL": p.model.URL() + "/v1", "apiKey": "{env:MODEL_KEY}"}, "models": obj{"play": obj{}}}}}))
			p.run([]string{"OPENCODE_CONFIG=" + file, tokenVariable + "=" + token}, "run", "-m", "script/play", "Look at the jobs.")
		},
	}
	eachCLI(t, "claude codex opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.listenTCP()
		operator := b.token("olga", "operate")
		r := b.serve()
		base, _ := b.link()
		for _, way := range []string{"stdio", "http"} {
			name := fmt.Sprintf("by-%s-%s", kind, way)
			p := b.personal(kind, scriptmodel.Play(
				scriptmodel.Call("list_jobs", `{"limit": 5}`),
				scriptmodel.Call("submit_job", fmt.Sprintf(`{"name": %q, "worker": "shell", "instructions": "echo it works", "fields": {"type": "TOOL"}}`, name)),
				scriptmodel.Call("wait_jobs", fmt.Sprintf(`{"jobs": [%q], "seconds": 50}`, name)),
				scriptmodel.Say("All is well.")))
			p.home = filepath.Join(p.home, way)
			if err := os.MkdirAll(filepath.Join(p.home, ".codex"), 0o700); err != nil {
				t.Fatal(err)
			}
			set[kind](p, way, base, operator)
			heard := p.heard()
			for _, tool := range []string{"submit_job", "list_jobs", "wait_jobs", "read_output", "job_diff", "answer_question"} {
				if !strings.Contains(heard, tool) {
					b.fatalf("%s was not offered to the model", tool)
				}
			}
			j := b.show(name)
			if j.Job.ExitKind != job.ExitSucceeded || !strings.Contains(heard, string(j.Job.ID)) || !strings.Contains(heard, "all of the jobs have ended") {
				b.fatalf("the job %s: %s; what the model heard ends: %s", name, j.Job.ExitKind, heard[max(0, len(heard)-4000):])
			}
			if way == "http" && b.submitter(name) != "olga" {
				b.fatalf("%s was submitted by %q, want olga", name, b.submitter(name))
			}
		}
		r.signal(syscall.SIGTERM)
		r.exit(0)
	})
}

// submitter returns who has submitted the latest job, by the audit log.
func (b *bench) submitter(name string) (who string) {
	b.t.Helper()
	for _, r := range b.records() {
		if r.Action == "request" && strings.Contains(r.Target, "job-files") && strings.Contains(asJSON(b.t, r), name) {
			who = r.Who.Name
		}
	}
	return who
}
