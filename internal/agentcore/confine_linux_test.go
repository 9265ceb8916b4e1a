package agentcore_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// TestConfine holds real programs: they reach what the job names and nothing else, and what they may is what is shown
// beforehand.
func TestConfine(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }))
	defer server.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	raw := "exec 3<>/dev/tcp/" + strings.Replace(strings.TrimPrefix(server.URL, "http://"), ":", "/", 1) + `; printf "GET / HTTP/1.0\r\n\r\n" >&3; cat <&3`
	base := t.TempDir()
	dir, err := statedir.Open(filepath.Join(base, "granted", "state"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.Key(), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"work", "borrowed", "temp", "other", "granted", "agent"} {
		if err := os.MkdirAll(filepath.Join(base, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, folder, "file"), []byte(folder), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var told []job.Event
	var audit sandbox.AuditLog
	defer audit.Close()
	of := agentcore.Confining{
		Spec: &job.Spec{
			Sandbox: job.Sandbox{Level: job.SandboxStandard}, Capabilities: []job.Capability{job.CanRead, job.CanRunCommands},
			Network: []string{strings.TrimPrefix(server.URL, "http://")},
		},
		Settings: ipc.Sandbox{Write: []string{filepath.Join(base, "granted"), dir.Key()}, Audit: true}, Audit: &audit,
		Host: sandbox.Probe(t.Context()), Dir: dir, Job: "01a1fcce-0000-7000-8000-000000000000", Worker: "shell",
		Programs:  []string{"sh", "file", filepath.Join(base, "agent", "file")},
		Workspace: []string{filepath.Join(base, "work")}, Borrowed: []string{filepath.Join(base, "borrowed")},
		Temp: filepath.Join(base, "temp"), Scratch: filepath.Join(base, "scratch"), User: os.Getenv,
		Emit: func(e job.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		},
		Stop: func(s *worker.Stop) { t.Errorf("stopped: %v", s) },
	}
	held, err := agentcore.Confine(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	// A login shell keeps the PATH, and what an earlier attempt has put into the home leads nowhere.
	environ := held.Environ([]string{"PATH=/it's/tools:" + os.Getenv("PATH")})
	home := (&worker.Task{Environ: environ}).Getenv("HOME")
	profile, victim := filepath.Join(home, ".profile"), filepath.Join(base, "other", "file")
	if err := errors.Join(os.MkdirAll(home, 0o700), os.Symlink(victim, profile)); err != nil {
		t.Fatal(err)
	}
	if err := held.MakeFolders(environ); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "other" {
		t.Errorf("a file that a link in the home led to holds %q, %v", data, err)
	}
	login := exec.Command("bash", "-lc", `echo "$PATH"`)
	login.Env = environ
	if out, err := login.Output(); err != nil || strings.TrimSpace(string(out)) != (&worker.Task{Environ: environ}).Getenv("PATH") {
		t.Errorf("a login shell has PATH %q, %v", out, err)
	}
	run := func(name string, args ...string) (string, error) {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := of.Held(sandbox.Standard)
		if err != nil {
			t.Fatal(err)
		}
		cmd := &worker.Command{Path: path}
		policy := held.Policy(cmd)
		shown = shown.For(cmd, of.User)
		if p := shown.Policy(); !slices.Equal(p.Read, policy.Read) || !slices.Equal(p.Write, policy.Write) || !slices.Equal(p.Hide, policy.Hide) {
			t.Errorf("%s is held to\n%+v\nand this is shown:\n%+v", name, policy, p)
		}
		return runHeld(t, held, policy, path, args...)
	}
	file := func(folder string) string { return filepath.Join(base, folder, "file") }
	for name, tc := range map[string]struct {
		command []string
		out     string
		ok      bool
	}{
		"its host":             {[]string{"curl", "-sS", "--noproxy", "", server.URL}, "answer", true},
		"another":              {[]string{"curl", "-fsS", "http://other.example/"}, "403", false},
		"its host, unasked":    {[]string{"curl", "-sS", server.URL}, "answer", true}, // NO_PROXY has the loopback
		"its host, by TCP":     {[]string{"bash", "-c", raw}, "answer", true},
		"past the proxy":       {[]string{"curl", "-sS", "--noproxy", "*", other.URL}, "", false},
		"its workspace":        {[]string{"cat", file("work")}, "work", true},
		"what that refers to":  {[]string{"cat", file("borrowed")}, "borrowed", true},
		"a file of the user's": {[]string{"cat", file("other")}, "Permission denied", false},
		"its own program":      {[]string{"cat", file("agent")}, "agent", true},
		"what is granted":      {[]string{"cat", file("granted")}, "granted", true},
		"the state within it":  {[]string{"cat", filepath.Join(dir.Path(), "instance.json")}, "Permission denied", false},
		"the key, granted":     {[]string{"cat", dir.Key()}, "Permission denied", false},
		"without edit":         {[]string{"sh", "-c", "echo x >" + file("work")}, "Permission denied", false},
		"its temporary files":  {[]string{"sh", "-c", "echo x >" + file("temp")}, "", true},
	} {
		if out, err := run(tc.command[0], tc.command[1:]...); (err == nil) != tc.ok || !strings.Contains(out, tc.out) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []func(*job.Event) bool{
		func(e *job.Event) bool { c := e.Connection; return c != nil && c.Host == "other.example" && !c.Allowed },
		func(e *job.Event) bool { c := e.Connection; return c != nil && c.Host == "127.0.0.1" && c.Allowed },
		func(e *job.Event) bool {
			return strings.HasPrefix(e.Text, "refused by the sandbox: connect 127.0.0.1:")
		},
		func(e *job.Event) bool { // where the host's audit is on
			return of.Host.Audit != nil || e.Text == "refused by the sandbox: read "+file("other")
		},
	} {
		if !slices.ContainsFunc(told, func(e job.Event) bool { return want(&e) }) {
			t.Errorf("not told: %+v", told)
		}
	}
}

// runHeld runs a program to its end and returns what it prints.
func runHeld(t *testing.T, held *agentcore.Confinement, policy *sandbox.Policy, path string, args ...string) (string, error) {
	t.Helper()
	start, err := policy.Prepare(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer start.Close()
	var out bytes.Buffer
	cmd := exec.Command(start.Path, args...)
	cmd.Args[0], cmd.ExtraFiles, cmd.Env, cmd.Dir = path, start.Extra, held.Environ(os.Environ()), "/"
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := start.Apply(proc.Spec{}).Enter(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	held.Started(start)
	err = cmd.Wait()
	return out.String(), err
}
