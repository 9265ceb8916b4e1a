package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoorFiles: a job file in a request has the scheduler read no file of its
// host, at either door, but those below api.files; the command line sends the
// files along that a job file names.
func TestDoorFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.listenTCP()
	below := filepath.Join(b.dir, "files")
	for _, dir := range []string{below, filepath.Join(b.dir, "own")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.config["api"].(obj)["files"] = below
	secret := filepath.Join(b.dir, "secret")
	b.write(secret, "the secret")
	b.write(filepath.Join(below, "todo.txt"), "echo from the folder")
	b.write(filepath.Join(below, "agents.yaml"), "agents: [{name: ann, worker: shell}]")
	for name, to := range map[string]string{"out": secret, "environ": "/proc/self/environ", "up": b.dir, "kernel": "/proc/self"} {
		if err := os.Symlink(to, filepath.Join(below, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.env = append(b.env, "HIDDEN=the secret")
	token := b.token("submitter", "submit")
	r := b.serve()
	base, _ := b.link()
	remote, local := b.tcpDoor(base, ""), b.socketDoor()

	file := func(field string, value any) string {
		j := obj{"id": "x", "worker": "shell", "instructions": "true", "runnable_at": "20h"}
		text := obj{"jobs": []obj{j}}
		switch field {
		case "instructions":
			j["instructions"] = obj{"file": value}
		case "workspace":
			j["workspace"] = obj{"path": value, "isolation": "copy"}
		default:
			text[field] = value
		}
		return asJSON(t, text)
	}
	for _, c := range []struct {
		field, path string
		sent        obj
		want        string // in the answer
		status      int
	}{
		{"instructions", secret, nil, "reads only files below " + below + " (api.files)", 400},
		{"instructions", "/proc/self/environ", nil, "reads only files below", 400},
		{"instructions", "todo.txt", nil, "reads only files below", 400}, // from no folder
		{"instructions", below + "/../secret", nil, "reads only files below", 400},
		{"instructions", below + "/out", nil, "escapes", 400},
		{"instructions", below + "/environ", nil, "escapes", 400},
		{"instructions", below + "/up/secret", nil, "escapes", 400},
		{"instructions", below, nil, "is not a regular file", 400},
		{"instructions", below + "/todo.txt", nil, "echo from the folder", 201},
		{"instructions", "mine.txt", obj{"mine.txt": "echo mine"}, "echo mine", 201},
		{"instructions", "~/mine.txt", obj{"~/mine.txt": "echo mine, too"}, "echo mine, too", 201},
		{"instructions", "mine.txt", obj{"mine.txt": strings.Repeat("x", 300<<10)}, "is too large", 400},
		{"agents_file", secret, nil, "reads only files below", 400},
		{"agents_file", below + "/agents.yaml", nil, `"x"`, 201},
		{"agents_file", "agents.yaml", obj{"agents.yaml": "agents: [{name: eve, worker: shell}]"}, `"x"`, 201},
		{"workspace", "/proc/self", nil, "workspace.path", 400},
		{"workspace", below + "/kernel", nil, "where the kernel shows processes", 400},
	} {
		body := obj{"text": file(c.field, c.path)}
		if c.sent != nil {
			body["files"] = c.sent
		}
		for name, d := range map[string]*door{"TCP": remote, "socket": local} {
			a := d.ask(http.MethodPost, "/v1/job-files", asJSON(t, body), "Authorization", "Bearer "+token)
			if a.status != c.status || !strings.Contains(a.body, c.want) || strings.Contains(a.body, "the secret") {
				t.Errorf("%s %s by %s: answered %d %s\nwant %d and %q", c.field, c.path, name, a.status, a.body, c.status, c.want)
			}
		}
	}

	// The command line reads what a user's own job file names, relative to it, and
	// a scheduler elsewhere gets the text.
	b.write(filepath.Join(b.dir, "own", "words.txt"), "echo words")
	b.write(filepath.Join(b.dir, "own", "ours.yaml"), "agents: [{name: zoe, worker: shell}]")
	b.write(filepath.Join(b.dir, "own", "jobs.yaml"), "agents_file: ours.yaml\njobs:\n- {id: by-file, agent: zoe, instructions: {file: words.txt}, runnable_at: 20h}\n- {id: bad, worker: shell, instructions: {file: missing.txt}}\n")
	b.env = append(b.env, "AGENTSCHED_SERVER="+base, "AGENTSCHED_TOKEN="+token)
	_, errs, code := b.command("submit", "own/jobs.yaml")
	if want := `own/jobs.yaml:4:`; code != 2 || !strings.Contains(errs, want) || !strings.Contains(errs, `cannot read "missing.txt"`) {
		t.Errorf("a job file that names a file that is not there: exit code %d, %s; want %q", code, errs, want)
	}
	b.write(filepath.Join(b.dir, "own", "missing.txt"), "true")
	if _, errs, code := b.command("submit", "own/jobs.yaml"); code != 0 {
		t.Errorf("submit to another host: exit code %d, %s", code, errs)
	}
	b.env = b.env[:len(b.env)-2]
	if got := b.show("by-file").Job.Spec.Instructions; got != "echo words" {
		t.Errorf("the instructions of by-file are %q", got)
	}
	r.stop()
}
