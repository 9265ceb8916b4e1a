package agentcli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An installing process that is killed leaves an npm which still writes. The
// next one waits for that npm, removes what it left and installs anew.
func TestKilledInTheMiddle(t *testing.T) {
	npm := newFakeNPM(t, "block")
	dir := t.TempDir()
	first := installerProcess(t, dir, "claude")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	orphan := npm.started()
	t.Cleanup(func() { syscall.Kill(orphan, syscall.SIGKILL) })
	first.Process.Kill()
	first.Wait()
	if half, _ := filepath.Glob(filepath.Join(dir, ".installing-"+"*", "install", "node_modules", "pkg", "half")); len(half) != 1 {
		t.Fatalf("no half install to repair: %v", half)
	}

	npm.mode("ok")
	waiting := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), func(l string) {
			if strings.HasPrefix(l, "waiting for another install") {
				close(waiting)
			}
		})
		ended <- err
	}()
	<-waiting
	if n := len(npm.calls()); n != 1 {
		t.Errorf("npm was called %d times while the orphan worked, want 1", n)
	}
	if err := syscall.Kill(orphan, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if found := catalog.Find(dir, catalog.Kinds()); len(found) != 3 {
		t.Errorf("found %v", found)
	}
	clean(t, dir)
}

func TestProcessesTakeTurns(t *testing.T) {
	npm := newFakeNPM(t, "ok")
	dir := t.TempDir()
	processes := make([]*exec.Cmd, 4)
	for i := range processes {
		processes[i] = installerProcess(t, dir, "codex", "claude", "opencode")
		if err := processes[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := len(npm.calls()); n != 3 {
		t.Errorf("npm was called %d times, want 3", n)
	}
	clean(t, dir)
}

// TestRealNPM installs the real programs: about 1 GB, half a minute.
func TestRealNPM(t *testing.T) {
	if os.Getenv("AGENTSCHED_TEST_REAL_NPM") != "1" {
		t.Skip("set AGENTSCHED_TEST_REAL_NPM=1 to install the real programs from npm")
	}
	dir := t.TempDir()
	got, err := catalog.Ensure(t.Context(), dir, catalog.Kinds(), func(l string) { t.Log(l) })
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range catalog.Kinds() {
		out, err := exec.Command(got[kind], "--version").Output()
		if err != nil || !strings.Contains(string(out), catalog.Package(kind).Version) {
			t.Errorf("%s --version: %q, %v", kind, out, err)
		}
	}
}
