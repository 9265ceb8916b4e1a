package agentcli_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

var catalog = agentcli.CatalogOf(agentcore.Adapters())

func silent(string) {}

func TestInstallsOnce(t *testing.T) {
	npm := newFakeNPM(t, "ok")
	home := t.TempDir()
	t.Setenv("HOME", home)
	dir := filepath.Join(t.TempDir(), "a", "cache")
	var lines []string
	note := func(l string) { lines = append(lines, l) }
	got, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), note)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range catalog.Kinds() {
		out, err := exec.Command(got[kind], "--version").Output()
		if err != nil || !strings.Contains(string(out), catalog.Package(kind).Version) {
			t.Errorf("%s --version: %q, %v", kind, out, err)
		}
	}
	if n := len(npm.calls()); n != 3 {
		t.Errorf("npm was called %d times, want 3", n)
	}
	if want := "installing 3 worker CLIs from npm ("; !strings.HasPrefix(lines[0], want) || !strings.Contains(lines[0], "about 1 GB) into "+dir) {
		t.Errorf("first line %q, want %q…", lines[0], want)
	}
	clean(t, dir)

	// Nothing is missing: no npm is needed.
	t.Setenv("PATH", "")
	lines = nil
	again, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), note)
	if err != nil || len(again) != 3 || lines != nil {
		t.Errorf("second time: %v, %v, lines %q", again, err, lines)
	}
}

// TestRelativeFolder: npm and the programs that are tried run in other folders
// than the one that a relative path is meant from.
func TestRelativeFolder(t *testing.T) {
	newFakeNPM(t, "ok")
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	got, err := catalog.Ensure(t.Context(), filepath.Join("rel", "cache"), catalog.Kinds(), silent)
	if err != nil {
		t.Fatal(err)
	}
	for kind, path := range got {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is at %s, want an absolute path", kind, path)
		}
	}
}

func TestTrialLeavesHomeAlone(t *testing.T) {
	newFakeNPM(t, "ok")
	home := t.TempDir()
	t.Setenv("HOME", home)
	if _, err := catalog.Ensure(t.Context(), t.TempDir(), catalog.Kinds(), silent); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("the user's home has %v, %v", left, err)
	}
}

func TestManifestIsExact(t *testing.T) {
	newFakeNPM(t, "ok")
	dir := t.TempDir()
	if _, err := catalog.Ensure(t.Context(), dir, []job.WorkerKind{"claude", "claude"}, silent); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "claude-"+catalog.Package("claude").Version, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Dependencies map[string]string }
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	if v := m.Dependencies["@anthropic-ai/claude-code"]; v != catalog.Package("claude").Version || len(m.Dependencies) != 1 {
		t.Errorf("dependencies %v", m.Dependencies)
	}
}

// TestNothingButWhatIsNeeded: npm installs by hashes and runs no script; the two
// packages that need one have theirs run, and neither sees what is none of its business.
func TestNothingButWhatIsNeeded(t *testing.T) {
	npm := newFakeNPM(t, "ok")
	for _, kv := range []string{"ANTHROPIC_API_KEY=secret", "NPM_CONFIG_REGISTRY=https://npm.example.com", "https_proxy=http://proxy", "NODE_OPTIONS=--require=evil"} {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	if _, err := catalog.Ensure(t.Context(), t.TempDir(), catalog.Kinds(), silent); err != nil {
		t.Fatal(err)
	}
	for _, call := range npm.calls() {
		if !strings.HasPrefix(call, "ci ") || !strings.Contains(call, "--ignore-scripts") {
			t.Errorf("npm %s", call)
		}
	}
	read := func(file string) string {
		text, err := os.ReadFile(npm.path(file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	scripts := strings.Split(strings.TrimSpace(read("scripts")), "\n")
	slices.Sort(scripts)
	if want := []string{"claude-code install.cjs", "opencode-ai postinstall.mjs"}; !slices.Equal(scripts, want) {
		t.Errorf("scripts %q, want %q", scripts, want)
	}
	for file, want := range map[string][]bool{"npm-env": {false, true, true, false}, "node-env": {false, false, false, false}} {
		env := read(file)
		for i, name := range []string{"ANTHROPIC_API_KEY=", "NPM_CONFIG_REGISTRY=", "https_proxy=", "NODE_OPTIONS="} {
			if strings.Contains(env, name) != want[i] {
				t.Errorf("%s: %s is there: %v", file, name, !want[i])
			}
		}
	}
}

// TestLockfiles: every package has a hash, none a registry, and the version is the pinned one.
func TestLockfiles(t *testing.T) {
	for kind, a := range agentcore.Adapters() {
		packaged, ok := a.(worker.Packaged)
		if !ok {
			continue
		}
		p := packaged.Package()
		var lock struct {
			Packages map[string]struct {
				Version, Resolved, Integrity string
				OptionalDependencies         map[string]string
			}
		}
		if err := json.Unmarshal(p.Lock, &lock); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if got := lock.Packages["node_modules/"+p.Name].Version; got != p.Version {
			t.Errorf("%s: version %q, want %s", kind, got, p.Version)
		}
		for path, one := range lock.Packages {
			if path != "" && !strings.HasPrefix(one.Integrity, "sha512-") || one.Resolved != "" {
				t.Errorf("%s: %s has the hash %q and the address %q", kind, path, one.Integrity, one.Resolved)
			}
			for name := range one.OptionalDependencies {
				if _, there := lock.Packages["node_modules/"+name]; !there {
					t.Errorf("%s: no hash of %s", kind, name)
				}
			}
		}
	}
}

func TestRepairsDamage(t *testing.T) {
	damages := map[string]func(program string) error{
		"removed":        os.Remove,
		"emptied":        func(p string) error { return os.Truncate(p, 0) },
		"not executable": func(p string) error { return os.Chmod(p, 0o644) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			npm := newFakeNPM(t, "ok")
			dir := t.TempDir()
			got, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), silent)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(got["codex"]); err != nil {
				t.Fatal(err)
			}
			if found := catalog.Find(dir, catalog.Kinds()); len(found) != 2 {
				t.Errorf("found %v, want all but codex", found)
			}
			if _, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), silent); err != nil {
				t.Fatal(err)
			}
			if n, found := len(npm.calls()), catalog.Find(dir, catalog.Kinds()); n != 4 || len(found) != 3 {
				t.Errorf("%d calls of npm, want 4; found %v", n, found)
			}
			clean(t, dir)
		})
	}
}

func TestFailures(t *testing.T) {
	cases := []struct{ mode, want, not string }{
		{"fail", "npm error line 20", "npm error line 5\n"},
		{"nothing", "is missing", ""},
		{"stub", "the native binary is missing", ""},
		{"other", "tool 0.0.1", ""},
	}
	for _, c := range cases {
		t.Run(c.mode, func(t *testing.T) {
			npm := newFakeNPM(t, c.mode)
			dir := t.TempDir()
			_, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), silent)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "install codex "+catalog.Package("codex").Version) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if err != nil && c.not != "" && strings.Contains(err.Error(), c.not) {
				t.Errorf("error has all of npm's output: %v", err)
			}
			if found := catalog.Find(dir, catalog.Kinds()); len(found) > 0 {
				t.Errorf("found %v", found)
			}
			for _, kind := range catalog.Kinds() {
				if err != nil && !strings.Contains(err.Error(), "install "+string(kind)) {
					t.Errorf("error says nothing of %s", kind)
				}
			}
			clean(t, dir)
			npm.mode("ok")
			if _, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), silent); err != nil {
				t.Errorf("the next try: %v", err)
			}
		})
	}
}

func TestWithoutNPM(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := catalog.Ensure(t.Context(), t.TempDir(), catalog.Kinds(), silent)
	if err == nil || !strings.Contains(err.Error(), "npm is not on PATH") || !strings.Contains(err.Error(), "Node.js 20 or newer") {
		t.Errorf("error %v", err)
	}
}

func TestUnknownKind(t *testing.T) {
	_, err := catalog.Ensure(t.Context(), t.TempDir(), []job.WorkerKind{"codex", "shell"}, silent)
	if err == nil || !strings.Contains(err.Error(), `"shell"`) || !strings.Contains(err.Error(), "claude, codex, opencode") {
		t.Errorf("error %v", err)
	}
}

func TestHeartbeat(t *testing.T) {
	npm := newFakeNPM(t, "block")
	beat := make(chan string)
	ended := make(chan error, 1)
	go func() {
		_, err := catalog.EnsureTelling(t.Context(), t.TempDir(), []job.WorkerKind{"codex"}, func(l string) {
			if strings.HasPrefix(l, "installing codex ") {
				select {
				case beat <- l:
				default:
				}
			}
		}, time.Millisecond)
		ended <- err
	}()
	npm.started()
	<-beat
	<-beat
	npm.proceed()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestCancel(t *testing.T) {
	npm := newFakeNPM(t, "block")
	dir := t.TempDir()
	cause := errors.New("the user went home")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := catalog.Ensure(ctx, dir, []job.WorkerKind{"opencode"}, silent)
		ended <- err
	}()
	pid := npm.started()
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("npm (%d) still runs: %v", pid, err)
	}
	clean(t, dir)
}
