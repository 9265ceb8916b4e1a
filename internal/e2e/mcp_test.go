package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// bearer sends a token with each request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// agent is a client of MCP.
type agent struct {
	b *bench
	*sdk.ClientSession
}

// overHTTP connects an agent to /mcp.
func (b *bench) overHTTP(base, token string, o *sdk.ClientOptions) *agent {
	b.t.Helper()
	tr := &http.Transport{}
	b.t.Cleanup(tr.CloseIdleConnections)
	return b.connect(&sdk.StreamableClientTransport{Endpoint: base + "/mcp", HTTPClient: &http.Client{Transport: bearer{token, tr}}}, o)
}

// overStdio connects an agent to `scheduler mcp`.
func (b *bench) overStdio(dir string, o *sdk.ClientOptions) *agent {
	b.t.Helper()
	cmd := exec.Command(schedulerProgram(), "--state", b.state, "--config", b.configFile(), "mcp")
	cmd.Env, cmd.Dir, cmd.Stderr = b.env, dir, os.Stderr
	return b.connect(&sdk.CommandTransport{Command: cmd}, o)
}

func (b *bench) connect(tr sdk.Transport, o *sdk.ClientOptions) *agent {
	b.t.Helper()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(b.t.Context(), tr, nil)
	if err != nil {
		b.fatalf("connect by MCP: %v", err)
	}
	b.t.Cleanup(func() { s.Close() })
	return &agent{b, s}
}

// tools returns the names of the tools, sorted.
func (a *agent) tools() (names []string) {
	a.b.t.Helper()
	list, err := a.ListTools(a.b.t.Context(), nil)
	if err != nil {
		a.b.fatalf("list tools: %v", err)
	}
	for _, t := range list.Tools {
		if t.Description == "" || t.InputSchema == nil || t.OutputSchema == nil || t.Annotations == nil {
			a.b.fatalf("tool %s lacks a description, a schema or annotations", t.Name)
		}
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// call calls a tool and decodes its result, unless that is an error, which it returns.
func call[T any](a *agent, name string, args obj) (out T, refused string) {
	a.b.t.Helper()
	r, err := a.CallTool(a.b.t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return out, err.Error()
	}
	if r.IsError {
		return out, r.Content[0].(*sdk.TextContent).Text
	}
	text, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		a.b.fatalf("%s: %v", name, err)
	}
	return out, ""
}

// must is call of a tool that does what it is asked for.
func must[T any](a *agent, name string, args obj) T {
	a.b.t.Helper()
	out, refused := call[T](a, name, args)
	if refused != "" {
		a.b.fatalf("%s %s: %s", name, asJSON(a.b.t, args), refused)
	}
	return out
}

// refused wants a tool to refuse, with these words.
func (a *agent) refused(name string, args obj, words ...string) {
	a.b.t.Helper()
	_, why := call[any](a, name, args)
	for _, w := range words {
		if !strings.Contains(why, w) {
			a.b.fatalf("%s %s: %q, want %q in it", name, asJSON(a.b.t, args), why, w)
		}
	}
}

// mcpJobs is a list of jobs.
type mcpJobs struct {
	Jobs []struct {
		ID    job.ID
		Name  string
		State string
	}
}

// mcpWaited is a result of wait_jobs.
type mcpWaited struct {
	Ended bool
	Jobs  []struct {
		Job struct {
			Name, State string
			FromRun     string `json:"from_run"`
		}
		FromRun *struct{ Answer string } `json:"from_run"`
	}
	Questions []struct{ Number int }
	Note      string
	Notice    string
}

// waited waits until jobs have ended.
func (a *agent) waited(jobs ...string) (w mcpWaited) {
	a.b.t.Helper()
	for !w.Ended {
		w = must[mcpWaited](a, "wait_jobs", obj{"jobs": jobs, "seconds": 60})
	}
	return w
}

// chat adds the worker that converses.
func (b *bench) chat() {
	b.t.Helper()
	path := filepath.Join(b.dir, "chat")
	cmd := exec.Command("go", "build", "-o", path, "./examples/workers/chat")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.fatalf("build chat: %v\n%s", err, out)
	}
	b.unheld()
	b.config["workers"].(obj)["chat"] = obj{"adapter": "exec", "command": []string{path}}
}

// TestMCPWork: an agent of a person submits, follows, reads and applies, by stdio as by HTTP.
func TestMCPWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.chat()
	b.listenTCP()
	operator := b.token("olga", "operate")
	r := b.serve()
	base, _ := b.link()
	for name, a := range map[string]*agent{"stdio": b.overStdio(b.repo, nil), "http": b.overHTTP(base, operator, nil)} {
		one := "write-" + name
		args := obj{"name": one, "worker": "chat", "workspace": b.repo, "instructions": "write " + name + ".txt hello\nsay \u001b[31mall done", "capabilities": []string{"read", "edit"}, "timeout": "5m", "fields": obj{"context": obj{"user_id": "u1"}}, "idempotency_key": name}
		first, again := must[mcpJobs](a, "submit_job", args), must[mcpJobs](a, "submit_job", args)
		if len(first.Jobs) != 1 || len(again.Jobs) != 1 || first.Jobs[0].ID != again.Jobs[0].ID || first.Jobs[0].Name != one {
			b.fatalf("submitted %+v, and again %+v", first, again)
		}
		w := a.waited(one)
		if len(w.Jobs) != 1 || w.Jobs[0].Job.State != "completed" || w.Jobs[0].FromRun == nil || w.Notice == "" {
			b.fatalf("waited: %+v", w)
		}
		out := must[struct {
			FromRun []string `json:"from_run"`
			Next    int64
		}](a, "read_output", obj{"job": one})
		if text := strings.Join(out.FromRun, "\n"); !strings.Contains(text, "all done") || strings.Contains(text, "\x1b") || out.Next == 0 {
			b.fatalf("output: %+v", out)
		}
		from := must[struct {
			FromRun []string `json:"from_run"`
			Next    int64
			More    bool
		}](a, "read_output", obj{"job": one, "after": 1, "lines": 1})
		if len(from.FromRun) != 1 || !from.More || from.Next >= out.Next {
			b.fatalf("output from there: %+v of %+v", from, out)
		}
		patch := must[struct {
			Bytes   int64
			FromRun string `json:"from_run"`
		}](a, "job_diff", obj{"job": one})
		if !strings.Contains(patch.FromRun, "+hello") || patch.Bytes != int64(len(patch.FromRun)) {
			b.fatalf("diff: %+v", patch)
		}
		a.refused("job_diff", obj{"job": one, "offset": 1 << 40}, "argument offset", "want 0 to")
		a.refused("show_job", obj{"job": "nobody"}, "nobody")
		a.refused("submit_job", obj{"name": "x", "worker": "nobody", "instructions": "x"}, "jobs[0].worker", `"nobody"`)
		a.refused("submit_job", obj{"name": "x", "worker": "chat", "fields": obj{"worker": "chat"}}, "argument fields", "worker")
		a.refused("submit_job", obj{"name": "x", "file": "jobs: []"}, "argument file")
		a.refused("submit_job", obj{"file": "jobs: [{id: x, worker: chat, instructions: y, wokspace: {}}]"}, "wokspace", "unknown field")
		a.refused("list_jobs", obj{"limit": 101}, "argument limit", "1 to 100")
		a.refused("list_jobs", obj{"nothing": 1}, "nothing")
		if st := must[struct{ Workers []struct{ Name string } }](a, "status", obj{}); !slices.ContainsFunc(st.Workers, func(w struct{ Name string }) bool { return w.Name == "chat" }) {
			b.fatalf("status: %+v", st)
		}
		if list := must[mcpJobs](a, "list_jobs", obj{"search": one}); len(list.Jobs) != 1 {
			b.fatalf("list: %+v", list)
		}
		if name != "stdio" {
			if slices.Contains(a.tools(), "apply_job") {
				b.fatalf("apply_job is offered where the files are the scheduler's host's")
			}
			continue
		}
		applied := must[struct {
			Root  string
			Files []struct{ Change, Path string }
		}](a, "apply_job", obj{"job": one})
		if len(applied.Files) != 1 || applied.Files[0].Path != "stdio.txt" {
			b.fatalf("applied: %+v", applied)
		}
		b.content(filepath.Join(b.repo, "stdio.txt"), "hello\n")
	}
	var routes []string
	for _, r := range b.records() {
		if r.Action == "request" && r.Who.Name == "olga" {
			routes = append(routes, r.Target)
		}
	}
	if got := strings.Join(routes, ", "); strings.Contains(got, "mcp") || !strings.Contains(got, "job-files") {
		b.fatalf("the audit log has of olga: %s", got)
	}
	r.signal(syscall.SIGTERM)
	r.exit(0)
}

// TestMCPRoles: a role has the tools that it may use, and no others.
func TestMCPRoles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	tokens := map[string]string{"read": b.token("rita", "read"), "submit": b.token("sam", "submit"), "operate": b.token("olga", "operate")}
	r := b.serve()
	base, _ := b.link()
	reads := []string{"job_diff", "list_jobs", "list_questions", "read_output", "show_job", "status", "wait_jobs"}
	want := map[string][]string{
		"read": reads, "submit": append([]string{"submit_job"}, reads...),
		"operate": append([]string{"submit_job", "answer_question", "cancel_job", "interrupt_job", "tell_job"}, reads...),
	}
	for role, token := range tokens {
		slices.Sort(want[role])
		a := b.overHTTP(base, token, nil)
		if got := a.tools(); !slices.Equal(got, want[role]) {
			b.fatalf("%s has %v, want %v", role, got, want[role])
		}
		if role != "operate" {
			a.refused("cancel_job", obj{"job": "x"}, "unknown tool")
		}
	}
	// A session is its owner's alone, and a token that is revoked has none.
	rita := b.overHTTP(base, tokens["read"], nil)
	d := b.tcpDoor(base, "")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	as := func(token string) []string {
		return []string{"Authorization", "Bearer " + token, "Mcp-Session-Id", rita.ID(), "Content-Type", "application/json", "Accept", "application/json, text/event-stream"}
	}
	if a := d.ask(http.MethodPost, "/mcp", ping, as(tokens["read"])...); a.status != http.StatusOK {
		b.fatalf("its owner's ping: %d %s", a.status, a.body)
	}
	if a := d.ask(http.MethodPost, "/mcp", ping, as(tokens["operate"])...); a.status != http.StatusForbidden {
		b.fatalf("another's ping: %d %s", a.status, a.body)
	}
	if a := d.ask(http.MethodPost, "/mcp", ping, append(as(tokens["read"]), "Origin", "http://evil.example")...); a.status != http.StatusForbidden {
		b.fatalf("a page of another site: %d %s", a.status, a.body)
	}
	if a := d.ask(http.MethodPost, "/mcp", strings.Repeat(" ", 5<<20)+ping, as(tokens["read"])...); a.status != http.StatusRequestEntityTooLarge {
		b.fatalf("a body of 5 MiB: %d %s", a.status, a.body)
	}
	if _, errs, code := b.command("token", "revoke", "rita"); code != 0 {
		b.fatalf("token revoke: exit code %d\n%s", code, errs)
	}
	b.eventually("a revoked token is refused", func() bool {
		return d.ask(http.MethodPost, "/mcp", ping, as(tokens["read"])...).status == http.StatusUnauthorized
	})
	r.signal(syscall.SIGTERM)
	r.exit(0)
}

// TestMCPAsks: a client that can elicit asks its user what a job asks, while it waits; one that declines leaves the question open.
func TestMCPAsks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.chat()
	b.listenTCP()
	operator := b.token("olga", "operate")
	r := b.serve()
	base, _ := b.link()
	for _, way := range []string{"stdio", "http"} {
		asked := make(chan *sdk.ElicitParams, 10)
		var progress lockedBuffer
		answers := []*sdk.ElicitResult{
			{Action: "accept", Content: map[string]any{"decision": "allow", "text": "go ahead"}},
			{Action: "accept", Content: map[string]any{"text": "the second"}},
			{Action: "decline"},
		}
		n := 0
		o := &sdk.ClientOptions{
			ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				asked <- req.Params
				n++
				return answers[n-1], nil
			},
			ProgressNotificationHandler: func(_ context.Context, p *sdk.ProgressNotificationClientRequest) {
				fmt.Fprintln(&progress, p.Params.Message)
			},
		}
		a := b.overStdio(b.dir, o)
		if way == "http" {
			a = b.overHTTP(base, operator, o)
		}
		name := "talk-" + way
		must[mcpJobs](a, "submit_job", obj{"name": name, "worker": "chat", "isolation": "none", "capabilities": []string{"read"}, "ask": []string{"commands", "words"},
			"instructions": "ask run make deploy\nask words which parser?\nask run rm -rf /\nsay over"})
		waiting := make(chan mcpWaited, 1)
		go func() {
			res, err := a.CallTool(t.Context(), &sdk.CallToolParams{Meta: sdk.Meta{"progressToken": "p"}, Name: "wait_jobs", Arguments: obj{"jobs": []string{name}, "seconds": 900}})
			var w mcpWaited
			if err == nil && !res.IsError {
				text, _ := json.Marshal(res.StructuredContent)
				err = json.Unmarshal(text, &w)
			}
			if err != nil || res.IsError {
				t.Errorf("wait: %v %+v", err, res)
			}
			waiting <- w
		}()
		for _, want := range []string{"make deploy", "which parser?", "rm -rf /"} {
			if q := <-asked; !strings.Contains(q.Message, want) || !strings.Contains(q.Message, "In the words of its agent") {
				b.fatalf("asked %q, want %q in it", q.Message, want)
			}
		}
		// The third is declined, and stays open: somebody else answers it.
		list := must[struct {
			Questions []struct {
				Number int
				State  string
				Answer string
			}
		}](a, "list_questions", obj{"job": name})
		if len(list.Questions) != 3 || list.Questions[2].State != "open" || !strings.HasPrefix(list.Questions[0].Answer, "allow by ") {
			b.fatalf("questions: %+v", list)
		}
		a.refused("answer_question", obj{"job": name, "number": 1, "decision": "deny"}, "answered already")
		if out, errs, code := b.command("answer", name, "no", "-m", "never"); code != 0 {
			b.fatalf("answer: exit code %d\n%s%s", code, out, errs)
		}
		w := <-waiting
		if !w.Ended || w.Jobs[0].Job.State != "completed" {
			b.fatalf("waited: %+v", w)
		}
		r.end(job.Name(name), job.RunCompleted)
		if text := progress.String(); !strings.Contains(text, name+": ") {
			b.fatalf("progress: %q", text)
		}
	}
	// A client that cannot elicit is told of a question, once; what else it can do, it does by tools.
	a := b.overHTTP(base, operator, nil)
	must[mcpJobs](a, "submit_job", obj{"name": "plain", "worker": "chat", "isolation": "none", "capabilities": []string{"read"}, "ask": []string{"commands"}, "instructions": "ask run make deploy\nwait\nsay over"})
	if w := must[mcpWaited](a, "wait_jobs", obj{"jobs": []string{"plain"}, "seconds": 900}); w.Ended || len(w.Questions) != 1 {
		b.fatalf("waited: %+v", w)
	}
	if w := must[mcpWaited](a, "wait_jobs", obj{"jobs": []string{"plain"}, "seconds": 1}); w.Ended || len(w.Questions) != 1 || !strings.Contains(w.Note, "time is over") {
		b.fatalf("waited again: %+v", w)
	}
	must[any](a, "answer_question", obj{"job": "plain", "decision": "allow"})
	must[any](a, "tell_job", obj{"job": "plain", "text": "go on"})
	if w := a.waited("plain"); w.Jobs[0].Job.State != "completed" {
		b.fatalf("waited: %+v", w)
	}
	s := b.overStdio(b.dir, nil)
	must[mcpJobs](s, "submit_job", obj{"name": "long", "worker": "chat", "isolation": "none", "instructions": "wait"})
	r.await("long runs", func(u *api.Update) bool { return u.Name == "long" && u.State == job.Running })
	must[any](s, "interrupt_job", obj{"job": "long"})
	must[any](s, "cancel_job", obj{"job": "long"})
	if w := s.waited("long"); w.Jobs[0].Job.State != "cancelled" {
		b.fatalf("waited: %+v", w)
	}
	// A wait ends with the scheduler, and an agent over stdio finds the next one.
	must[mcpJobs](s, "submit_job", obj{"name": "longer", "worker": "chat", "isolation": "none", "instructions": "wait"})
	heard := make(chan struct{}, 100)
	a = b.overHTTP(base, operator, &sdk.ClientOptions{ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { heard <- struct{}{} }})
	last := make(chan string, 1)
	go func() {
		res, err := a.CallTool(t.Context(), &sdk.CallToolParams{Meta: sdk.Meta{"progressToken": "p"}, Name: "wait_jobs", Arguments: obj{"jobs": []string{"longer"}, "seconds": 900}})
		if err != nil {
			last <- err.Error()
			return
		}
		last <- res.Content[0].(*sdk.TextContent).Text
	}()
	<-heard
	r.signal(syscall.SIGTERM)
	r.exit(0)
	if text := <-last; !strings.Contains(text, "the scheduler is about to end") {
		b.fatalf("the wait ended so: %s", text)
	}
	s.refused("list_jobs", obj{}, "no scheduler is running")
	r = b.serve()
	if list := must[mcpJobs](s, "list_jobs", obj{"search": "longer"}); len(list.Jobs) != 1 {
		b.fatalf("list: %+v", list)
	}
	must[any](s, "cancel_job", obj{"job": "longer"})
	s.waited("longer")
	r.signal(syscall.SIGTERM)
	r.exit(0)
}
