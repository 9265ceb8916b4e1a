package agentcore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// runResolved is run with what the scheduler has put in for expressions.
func (c *client) runResolved(id job.ID, attempt int, s job.Spec, with *job.Resolved, change func(*ipc.SubmitJob)) job.Outcome {
	c.t.Helper()
	var a ipc.PermitAnswer
	choice := job.Choice{Worker: s.Worker}
	c.must(ipc.MethodRequestPermit, ipc.PermitRequest{Job: id, Tenant: s.Tenant, Attempt: attempt, Choice: choice, Workspace: s.Workspace, Limits: s.Limits}, &a)
	if a.Permit == nil {
		c.t.Fatalf("permit for %s refused: %+v", id, a.Rejection)
	}
	submit := ipc.SubmitJob{Permit: a.Permit.ID, Job: id, Attempt: attempt, Choice: choice, Spec: s, Resolved: with}
	if change != nil {
		change(&submit)
	}
	c.must(ipc.MethodSubmitJob, submit, nil)
	return c.outcome()
}

// reader answers with what it was told, as a model would be. Lines that begin
// with "denied " are calls that it was not allowed.
type reader struct{}

func withReader(cfg *agentcore.Config) { cfg.Adapters["reader"] = reader{} }

func (reader) Locate(job.WorkerSettings) (string, error)       { return "/bin/cat", nil }
func (reader) Version(context.Context, string) (string, error) { return "1", nil }
func (reader) Start(t *worker.Task) (worker.Session, error)    { return &readerSession{task: t}, nil }

type readerSession struct {
	task   *worker.Task
	answer string
	denied []string
}

func (s *readerSession) Command() worker.Command {
	return worker.Command{Path: "/bin/cat", Env: s.task.Environ, Dir: s.task.Dir, Stdin: []byte(s.task.SystemPrompt + "|" + s.task.Instructions)}
}

func (s *readerSession) Step(_ time.Time, in worker.Input) []worker.Action {
	switch in := in.(type) {
	case worker.Output:
		s.read(in.Line)
	case worker.Ended:
		return []worker.Action{worker.Finish{Result: s.result(in.Exit)}}
	}
	return nil
}

func (s *readerSession) read(line []byte) {
	s.answer += string(line) + "\n"
	if call, ok := strings.CutPrefix(string(line), "denied "); ok {
		s.denied = append(s.denied, call)
	}
}

func (s *readerSession) result(worker.Exit) worker.Result {
	return worker.Result{Answer: s.answer, Denied: s.denied}
}

// TestResolvedWords runs a job with other words than its own.
func TestResolvedWords(t *testing.T) {
	c := start(t, withReader)
	c.hello()
	c.configure(nil)
	own := spec("echo own", func(s *job.Spec) { s.Verify = "test -f never" })
	with := &job.Resolved{Instructions: `cat "$AGENTSCHED_INPUT"; echo; touch checked`, Verify: "test -f checked", Input: json.RawMessage(`{"n":["` + "```" + `"]}`)}
	o := c.runResolved("a", 1, own, with, nil)
	if !o.Succeeded() || strings.TrimSpace(o.Answer) != string(with.Input) {
		t.Errorf("outcome %+v", o)
	}
	// A script is told why it was not good enough, and is not changed by it.
	o = c.runResolved("b", 1, spec(`echo "$AGENTSCHED_FEEDBACK"`, nil), &job.Resolved{}, func(s *ipc.SubmitJob) { s.Feedback = "it's `wrong`\nsee" })
	if !o.Succeeded() || strings.TrimSpace(o.Answer) != "it's `wrong`\nsee" {
		t.Errorf("outcome %+v", o)
	}
	// A model reads it.
	model := spec("Say it.", func(s *job.Spec) { s.Worker, s.SystemPrompt = "reader", "own" })
	o = c.runResolved("c", 1, model, &job.Resolved{Input: with.Input, SystemPrompt: "Be brief."}, nil)
	if want := "Be brief.|Say it.\n\nInput:\n```json\n{\n  \"n\": [\n    \"```\"\n  ]\n}\n```"; !strings.Contains(o.Answer, want) {
		t.Errorf("the worker was told %q, want %q; %+v", o.Answer, want, o)
	}
	c.end()
}

// TestDenied keeps what an agent was not allowed, each call once, and not all
// of a flood.
func TestDenied(t *testing.T) {
	c := start(t, withReader)
	c.hello()
	c.configure(nil)
	asked := "Ask.\ndenied Bash(make)\ndenied Read(/etc/hosts)\ndenied Bash(make)\n"
	model := spec(asked, func(s *job.Spec) { s.Worker = "reader" })
	if o := c.runResolved("a", 1, model, nil, nil); !o.Succeeded() || strings.Join(o.Denied, " ") != "Bash(make) Read(/etc/hosts)" {
		t.Errorf("outcome %+v", o)
	}
	for i := range 100 {
		model.Instructions += fmt.Sprintf("denied Bash(%d)\n", i)
	}
	if o := c.runResolved("b", 1, model, nil, nil); len(o.Denied) != job.MaxDenied {
		t.Errorf("%d denied calls", len(o.Denied))
	}
	c.end()
}

// gitRepo makes a repository with these files. Call it before start: the core
// takes every child of this process for its own.
func gitRepo(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "-q", "-m", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

func patchOf(name job.Name, o job.Outcome) job.Patch {
	for _, a := range o.Artifacts {
		if a.Name == job.ArtifactPatch {
			return job.Patch{Job: name, Path: a.Path, Bytes: a.Bytes, SHA256: a.SHA256}
		}
	}
	return job.Patch{Job: name}
}

// TestPatchesOfOthers stacks jobs on each other, with and without conflicts.
func TestPatchesOfOthers(t *testing.T) {
	repo := gitRepo(t, map[string]string{"f": "1\n2\n3\n4\n5\n", "g": "g\n"})
	c := start(t, withReader)
	c.patches = parcelStore{} // the scheduler has none either
	c.hello()
	c.configure(nil)
	in := func(script string, change func(*job.Spec)) job.Spec {
		return spec(script, func(s *job.Spec) {
			s.Workspace = job.Workspace{Path: repo, Isolation: job.Worktree}
			if change != nil {
				change(s)
			}
		})
	}
	first := c.runResolved("a", 1, in("sed -i s/1/one/ f", nil), nil, nil)
	second := c.runResolved("b", 1, in("sed -i s/5/five/ f", nil), nil, nil)
	third := c.runResolved("c", 1, in("sed -i s/1/uno/ f", nil), nil, nil)
	idle := c.runResolved("d", 1, in("true", nil), nil, nil)
	if len(first.PatchHash) != 64 || first.PatchHash == second.PatchHash || idle.PatchHash != "" {
		t.Errorf("hashes %q, %q, %q", first.PatchHash, second.PatchHash, idle.PatchHash)
	}
	both := &job.Resolved{Patches: []job.Patch{patchOf("a", first), patchOf("d", idle), patchOf("b", second)}}
	o := c.runResolved("e", 1, in("cat f; echo h > h", nil), both, nil)
	if !o.Succeeded() || strings.TrimSpace(o.Answer) != "one\n2\n3\n4\nfive" || len(o.Files) != 1 || o.Files[0].Path != "h" {
		t.Errorf("on top of two: %+v", o)
	}
	if w, ok := o.Artifact(job.ArtifactWhole); !ok || statedir.CheckArtifact(w) != nil || w.SHA256 == "" || w.SHA256 == o.PatchHash {
		t.Errorf("the whole patch is %+v", w)
	}

	clash := &job.Resolved{Patches: []job.Patch{patchOf("a", first), patchOf("c", third)}}
	o = c.runResolved("x", 1, in("touch ran", nil), clash, nil)
	if o.Class != job.ConflictClass || o.State != job.RunFailed || !strings.Contains(o.Message, "the patch of job c conflicts with that of job a in f") {
		t.Errorf("a conflict: %+v", o)
	}
	resolve := func(s *job.Spec) { s.Flow.OnConflict = job.ResolveConflict }
	o = c.runResolved("y", 1, in(`echo "$AGENTSCHED_CONFLICTS"; echo g2 > g`, resolve), clash, nil)
	if o.Class != job.ConflictClass || !strings.Contains(o.Message, "marks") || !strings.Contains(o.Message, "in f") || strings.TrimSpace(o.Answer) != "f" || len(o.Files) != 1 {
		t.Errorf("marks left: %+v", o)
	}
	o = c.runResolved("z", 1, in("grep -q '<<<<<<< job a' f && sed -i '/^<<</,/^===/d; /^>>>/d' f; cat f", resolve), clash, nil)
	if !o.Succeeded() || strings.TrimSpace(o.Answer) != "uno\n2\n3\n4\n5" || len(o.Files) != 1 {
		t.Errorf("resolved: %+v", o)
	}
	o = c.runResolved("p", 1, in("Merge.", func(s *job.Spec) { resolve(s); s.Worker = "reader" }), clash, nil)
	if !strings.Contains(o.Answer, "- f: the changes of c meet the changes of a\n") || o.Class != job.ConflictClass {
		t.Errorf("what a model reads: %+v", o)
	}

	o = c.runResolved("m", 1, in("true", nil), &job.Resolved{Patches: []job.Patch{{Job: "gone", Path: repo + "/no.patch"}}}, nil)
	if o.Class != job.Config || !strings.Contains(o.Message, "the patch of job gone is missing: "+repo+"/no.patch") {
		t.Errorf("missing: %+v", o)
	}
	if err := os.WriteFile(patchOf("b", second).Path, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	o = c.runResolved("o", 1, in("true", nil), both, nil)
	if o.Class != job.Config || !strings.Contains(o.Message, "the patch of job b cannot be trusted") || !strings.Contains(o.Message, second.PatchHash) {
		t.Errorf("another patch: %+v", o)
	}
	o = c.runResolved("n", 1, spec("true", nil), both, nil)
	if o.Class != job.Config || !strings.Contains(o.Message, "isolation none") {
		t.Errorf("nowhere to apply it: %+v", o)
	}
	c.end()
}

// TestLoopCheck makes the checks that a loop's turn may have.
func TestLoopCheck(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t)
	c.hello()
	c.configure(nil)
	for _, test := range []struct {
		script string
		loop   job.Loop
		passed bool
		text   string
	}{
		{"echo 42 > n", job.Loop{Command: "echo looking >&2; grep 42 n"}, true, "looking\n42"},
		{"echo 41 > n", job.Loop{Command: "cat n; grep -q 42 n"}, false, "41"},
		{"true", job.Loop{Command: "exit 3"}, false, `the check command "exit 3" ended with exit code 3:`},
		{"true", job.Loop{Command: "kill -9 $$"}, false, `the check command "kill -9 $$" was ended by signal: killed:`},
		{"true", job.Loop{Command: "yes | head -n 10000; exit 1"}, false, strings.TrimSpace(strings.Repeat("y\n", 4096))},
		{"mkdir d; touch d/done", job.Loop{File: "d/done"}, true, "d/done exists"},
		{"touch done; ln -s done link", job.Loop{File: "link"}, true, "link exists"},
		{"true", job.Loop{File: "d/done"}, false, "d/done does not exist"},
		{"ln -s " + outside + " done", job.Loop{File: "done"}, false, "look for done: statat done: path escapes from parent"},
	} {
		o := c.runResolved(job.NewID(), 1, spec(test.script, func(s *job.Spec) { s.Flow.Loop = &test.loop }), nil, nil)
		if !o.Succeeded() || o.Check == nil || o.Check.Passed != test.passed || o.Check.Text != test.text {
			t.Errorf("%s, %+v: check %+v, outcome %+v", test.script, test.loop, o.Check, o)
		}
	}
	for _, s := range []job.Spec{
		spec("false", func(s *job.Spec) { s.Flow.Loop = &job.Loop{Command: "true"} }),
		spec("true", func(s *job.Spec) { s.Verify, s.Flow.Loop = "false", &job.Loop{Command: "true"} }),
		spec("true", func(s *job.Spec) { s.Flow.Loop = &job.Loop{Until: "output.done"} }),
	} {
		if o := c.runResolved(job.NewID(), 1, s, nil, nil); o.Check != nil {
			t.Errorf("there was nothing to check: %+v", o)
		}
	}
	c.end()
}

// TestLooksAreStopped cancels a check, and lets an evaluation run out of time.
func TestLooksAreStopped(t *testing.T) {
	c := start(t)
	c.hello()
	c.configure(nil)
	dir := t.TempDir()
	mkfifo(t, filepath.Join(dir, "up"))
	up, err := os.OpenFile(filepath.Join(dir, "up"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	hang := "setsid sleep 300 & echo up > " + dir + "/up; sleep 301"
	c.run("a", spec("true", func(s *job.Spec) { s.Flow.Loop = &job.Loop{Command: hang} }))
	if _, err := up.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: 1, Class: job.CancelledClass, Reason: "enough"}, nil)
	if o := c.outcome(); o.State != job.RunCancelled || o.Message != "enough" || o.Check != nil {
		t.Errorf("outcome %+v", o)
	}
	c.nothingLeft()
	o := c.runResolved("b", 1, spec("true", func(s *job.Spec) {
		s.Flow.Evaluation = &job.Evaluation{Command: "sleep 300"}
		s.Limits.Timeout = job.Duration(300 * time.Millisecond)
	}), nil, nil)
	if o.Class != job.Timeout || o.State != job.RunFailed {
		t.Errorf("outcome %+v", o)
	}
	c.end()
}

// TestReport gets reports from a command and from files; a bad one is a warning.
func TestReport(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(outside, []byte(`{"quality": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t)
	c.hello()
	c.configure(nil)
	for _, test := range []struct {
		script     string
		evaluation job.Evaluation
		want       string // the report as JSON, or of what is warned
	}{
		{"echo 0.5 > q", job.Evaluation{Command: `echo noise >&2; printf '{"quality": %s, "cost": 1, "error_rate": 0}' "$(cat q)"`}, `{"cost":1,"error_rate":0,"quality":0.5}`},
		{`echo '{"speed": 0.25}' > r`, job.Evaluation{Report: "r"}, `{"speed":0.25}`},
		{`echo '{"speed": 0.25}' > r; ln -s r l`, job.Evaluation{Report: "l"}, `{"speed":0.25}`},
		{"true", job.Evaluation{Command: "echo '{}'; exit 2"}, "ended with exit code 2"},
		{"true", job.Evaluation{Command: "true"}, "it is empty"},
		{"true", job.Evaluation{Command: `echo '{"quality": 1.01}'`}, "quality is 1.01; want a number from 0 to 1"},
		{"true", job.Evaluation{Command: `echo '{"quality": null}'`}, "want a number from 0 to 1"},
		{"true", job.Evaluation{Command: `echo '{"beauty": 1}'`}, `"beauty" is not a dimension; want quality, adherence`},
		{"true", job.Evaluation{Command: `echo '{"quality": 1} {"cost": 1}'`}, "it is not a JSON object"},
		{"true", job.Evaluation{Command: `echo '[1]'`}, "it is not a JSON object"},
		{"true", job.Evaluation{Command: `echo '{"quality": 1}'; yes | head -c 70000`}, "more than 64 KiB"},
		{"true", job.Evaluation{Report: "r"}, "no such file"},
		{"mkdir r", job.Evaluation{Report: "r"}, "r is not a file"},
		{"mkfifo r", job.Evaluation{Report: "r"}, "r is not a file"},
		{"ln -s " + outside + " r", job.Evaluation{Report: "r"}, "path escapes"},
		{"true", job.Evaluation{Report: outside}, "path escapes"},
		{"yes | head -c 70000 > r", job.Evaluation{Report: "r"}, "more than 64 KiB"},
	} {
		o := c.runResolved(job.NewID(), 1, spec(test.script, func(s *job.Spec) { s.Flow.Evaluation = &test.evaluation }), nil, nil)
		if !o.Succeeded() {
			t.Errorf("%s, %+v: outcome %+v", test.script, test.evaluation, o)
		}
		if strings.HasPrefix(test.want, "{") {
			if got, _ := json.Marshal(o.Report); string(got) != test.want {
				t.Errorf("%s, %+v: report %s, want %s", test.script, test.evaluation, got, test.want)
			}
			continue
		}
		warning := c.await(func(e job.Event) bool { return e.Kind == job.EventWarning && e.Step == "evaluate" })
		if o.Report != nil || !strings.Contains(warning.Text, test.want) {
			t.Errorf("%s, %+v: report %v, warning %q, want %q", test.script, test.evaluation, o.Report, warning.Text, test.want)
		}
	}
	c.end()
}
