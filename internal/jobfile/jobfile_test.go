package jobfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/jobfile"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/job"
)

var update = flag.Bool("update", false, "rewrite the answers in testdata")

// now is when every job file of these tests is read.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// folder makes a folder with what the job files of testdata refer to, and
// makes it the home folder too.
func folder(t testing.TB) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"repo/.git", "repo/sub", "plain"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"task.md": "ls -l\n", "agents.yaml": "agents:\n  - {name: writer, worker: claude}\n",
		"agents-wrong.yaml": "agents:\n  - {name: writer, worker: clode, capabilities: [fly]}\n", "agents-none.yaml": "agents: []\n", "empty.md": " \n", "binary.md": "\xff\xfe\x00", "large.md": strings.Repeat("x", jobfile.MaxInstructions+1),
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", base)
	return base
}

func options(base string) jobfile.Options {
	return jobfile.Options{Now: now, Workers: []string{"codex", "claude", "opencode", "shell"}, BaseDir: base}
}

func TestGood(t *testing.T) {
	base := folder(t)
	schematest.Golden(t, "testdata/good.txtar", *update, func(t *testing.T, name string, data []byte) string {
		jobs, err := jobfile.DecodeJobs(name, data, options(base))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		for _, s := range jobs.Specs {
			if errs := s.Validate(); len(errs) > 0 {
				t.Errorf("%s breaks a rule: %v", s.Name, errs[0])
			}
			print(t, &b, s)
		}
		if w := jobs.Workflow; w.Teams != nil || w.Agents != nil || w.Pipelines != nil {
			if errs := w.Validate(); len(errs) > 0 {
				t.Errorf("the workflow breaks a rule: %v", errs[0])
			}
			print(t, &b, w)
		}
		return strings.ReplaceAll(b.String(), base, "BASE")
	})
}

func print(t *testing.T, b *bytes.Buffer, v any) {
	t.Helper()
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
}

func TestBad(t *testing.T) {
	base := folder(t)
	schematest.Golden(t, "testdata/bad.txtar", *update, func(t *testing.T, name string, data []byte) string {
		specs, err := jobfile.Decode(name, data, options(base))
		if err == nil {
			t.Fatalf("accepted: %+v", specs)
		}
		var list strictyaml.Errors
		if !errors.As(err, &list) {
			t.Errorf("error of type %T", err)
		}
		return strings.ReplaceAll(err.Error(), base, "BASE") + "\n"
	})
}

// TestEveryField gives each field values that few fields take. Where a field is
// accepted here, its file may still want more of it than a value of its own.
func TestEveryField(t *testing.T) {
	base := folder(t)
	entries := map[string]schematest.Entry{
		"":                     {Beside: map[string]string{"jobs": "[{id: a, worker: codex, instructions: do it}]"}},
		"jobs[]":               {Beside: map[string]string{"id": "a", "worker": "codex", "instructions": "do it"}},
		"jobs[].workspace":     {Beside: map[string]string{"path": "repo"}},
		"jobs[].for_each":      {Beside: map[string]string{"items": "[1]"}},
		"jobs[].loop":          {Beside: map[string]string{"command": "ls"}},
		"jobs[].oversight":     {Beside: map[string]string{"mode": "spot_check"}},
		"agents[]":             {Beside: map[string]string{"name": "b", "worker": "codex"}},
		"agents[].oversight":   {Beside: map[string]string{"mode": "spot_check"}},
		"teams[]":              {Beside: map[string]string{"id": "t", "members": "[a]"}},
		"teams[].members[]":    {Beside: map[string]string{"job": "a"}},
		"pipelines[]":          {Beside: map[string]string{"id": "p", "stages": "[{job: a, publishes: [x]}]"}},
		"pipelines[].stages[]": {Beside: map[string]string{"job": "a", "publishes": "[x]"}},
	}
	schematest.Probe(t, "../../docs/job-file.schema.json", "testdata/fields.golden", *update, entries, func(file string) error {
		_, err := jobfile.DecodeJobs("f", []byte(file+"\n"), options(base))
		if err == nil {
			return nil
		}
		var list strictyaml.Errors
		if !errors.As(err, &list) {
			return err
		}
		for _, e := range list {
			e.Message = strings.ReplaceAll(e.Message, base, "BASE")
		}
		return list
	})
}

func TestLoadTakesPathsFromTheFilesFolder(t *testing.T) {
	base := folder(t)
	path := filepath.Join(base, "repo", "jobs.yaml")
	content := "jobs:\n  - {id: a, worker: any, instructions: {file: ../task.md}, workspace: {path: ../plain}}\n"
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	specs, err := jobfile.Load(path, jobfile.Options{Now: now}) // no kinds given: any will do
	if err != nil {
		t.Fatal(err)
	}
	s := specs[0]
	if want := filepath.Join(base, "plain"); s.Workspace.Path != want || s.Workspace.Isolation != job.Copy || s.Instructions != "ls -l\n" {
		t.Errorf("got workspace %+v and instructions %q, want a copy of %s and those of task.md", s.Workspace, s.Instructions, want)
	}
}

func TestLoadSaysWhyAFileCannotBeRead(t *testing.T) {
	base := folder(t)
	for path, want := range map[string]string{
		"nothing.yaml": "no such file or directory",
		"repo":         "is not a regular file",
	} {
		path = filepath.Join(base, path)
		_, err := jobfile.Load(path, options(""))
		if want = "read job file " + path + ": " + want; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := jobfile.Load(filepath.Join(base, "nothing.yaml"), options("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v is not os.ErrNotExist", err)
	}
}

func TestLoadAll(t *testing.T) {
	base := folder(t)
	write := func(name, content string) string {
		path := filepath.Join(base, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.yaml", "tenant: x\njobs:\n  - {id: a, worker: codex, instructions: do it}\n")
	two := write("two.yaml", "jobs:\n  - {id: b, worker: codex, instructions: do it}\n")
	same := write("same.yaml", "jobs:\n  - {worker: codex, id: a, instructions: do it}\n")
	taken := write("taken.yaml", "jobs:\n  - {id: k, worker: codex, instructions: do it, key: k}\n")
	reject := write("reject.yaml", "jobs:\n  - {id: r, worker: codex, instructions: do it, key: k, on_duplicate: reject}\n")
	wrong := write("wrong.yaml", "jobs: 1\n")

	specs, err := jobfile.LoadAll([]string{one, two}, options(""))
	if err != nil || len(specs) != 2 || specs[0].Tenant != "x" || specs[1].Tenant != job.DefaultTenant || specs[1].Name != "b" {
		t.Errorf("got %+v, %v", specs, err)
	}
	_, err = jobfile.LoadAll([]string{taken, reject}, options(""))
	if err == nil || !strings.Contains(err.Error(), reject+":2:54: jobs[0].key: the job at "+taken+":2:54 has the same key") {
		t.Errorf("got %v, want both places of the key", err)
	}
	_, err = jobfile.LoadAll([]string{one, wrong, same, filepath.Join(base, "gone.yaml")}, options(""))
	want := "read job file BASE/gone.yaml: no such file or directory\n" +
		"BASE/wrong.yaml:1:7: jobs: found the number 1, want a list\n" +
		"BASE/same.yaml:2:25: jobs[0].id: \"a\" is the id of the job at BASE/one.yaml:3:10 already; ids are unique among the jobs that are submitted together"
	if err == nil {
		t.Fatal("no error")
	}
	if got := strings.ReplaceAll(err.Error(), base, "BASE"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestLoadJobsAcrossFiles: what jobs say about each other holds across files, and
// what is wrong stands where it was written.
func TestLoadJobsAcrossFiles(t *testing.T) {
	base := folder(t)
	write := func(name, content string) string {
		path := filepath.Join(base, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.yaml", "jobs:\n  - {id: a, agent: editor, instructions: x}\nteams:\n  - {id: t, members: [a]}\nagents_file: agents.yaml\n")
	two := write("two.yaml", "agents_file: agents.yaml\nagents:\n  - {name: editor, worker: claude}\njobs:\n  - {id: b, needs: a, agent: writer, instructions: \"${{ jobs.a.output }}\"}\nteams:\n  - {id: u, members: [b, {team: t}]}\n")
	jobs, err := jobfile.LoadJobs([]string{one, two}, options(""))
	if err != nil {
		t.Fatal(err)
	}
	if s := jobs.Specs; len(s) != 2 || s[0].Worker != "claude" || s[1].Worker != "claude" || !s[0].Flow.Joined || !s[1].Flow.Joined {
		t.Errorf("got %+v, want two joined jobs with the workers of their agents", s)
	}
	w := jobs.Workflow
	if len(w.Teams) != 2 || w.Teams[1].ID != "u" || len(w.Agents) != 2 {
		t.Errorf("got %+v, want both teams, and both agents once", w)
	}

	three := write("three.yaml", "jobs:\n  - {id: c, needs: [d], worker: codex, instructions: x}\nteams:\n  - {id: v, members: [c, zz]}\n  - {id: t, members: [c]}\nagents:\n  - {name: editor}\n")
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{one, three}, "BASE/one.yaml:2:5: jobs[0].worker: is missing"}, // the third file's profile has none
		{[]string{one, two, three}, "BASE/three.yaml:5:10: teams[1].id: \"t\" is the id of the team at BASE/one.yaml:4:10 already"},
		{[]string{one, two, three}, "BASE/three.yaml:7:12: agents[0].name: \"editor\" is the agent at BASE/two.yaml:3:12 already"},
		{[]string{two, one, write("four.yaml", "jobs:\n  - {id: c, needs: [d], worker: codex, instructions: x}\nteams:\n  - {id: v, members: [c, zz]}\n")},
			"BASE/four.yaml:2:21: jobs[0].needs[0]: there is no job \"d\""},
		{[]string{two, one, filepath.Join(base, "four.yaml")}, "BASE/four.yaml:4:26: teams[0].members[1]: there is no job \"zz\""},
	} {
		_, err := jobfile.LoadJobs(c.files, options(""))
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), base, "BASE"), c.want) {
			t.Errorf("%v: got\n%v\nwant %s", c.files, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, archive := range []string{"testdata/good.txtar", "testdata/bad.txtar"} {
		for _, data := range schematest.Inputs(f, archive) {
			f.Add(data)
		}
	}
	base := folder(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		specs, err := jobfile.Decode("f", data, options(base))
		if err != nil {
			var list strictyaml.Errors
			if !errors.As(err, &list) || len(list) == 0 {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		for _, s := range specs {
			if errs := s.Validate(); len(errs) > 0 {
				t.Fatalf("accepted a job that breaks a rule: %v", errs[0])
			}
		}
	})
}
