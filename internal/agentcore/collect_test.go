package agentcore_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// Whoever cancels a run whose patch is being made does not wait for the patch.
func TestCancelWhileThePatchIsMade(t *testing.T) {
	home, folder := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		// A filter of the user's own, as that of git-lfs, which never ends.
		filepath.Join(home, ".gitconfig"):       "[filter \"slow\"]\n\tclean = \"touch '" + home + "/begun'; sleep 300\"\n",
		filepath.Join(folder, ".gitattributes"): "*.slow filter=slow\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	c := start(t)
	c.hello()
	c.configure(nil)
	c.run("a", spec("echo work > x.slow", func(s *job.Spec) { s.Workspace = job.Workspace{Path: folder, Isolation: job.Copy} }))
	for {
		if _, err := os.Stat(filepath.Join(home, "begun")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.must(ipc.MethodCancelJob, ipc.CancelJob{Job: "a", Attempt: 1, Class: job.CancelledClass, Reason: "enough"}, nil)
	if o := c.outcome(); o.State != job.RunCancelled || o.Message != "enough" || o.StopMillis == 0 {
		t.Errorf("outcome %+v", o)
	}
	c.nothingLeft()
	c.end()
}

// TestReplacedWorkspaceIsRemovedMeanwhile: the folder of the attempt before is removed
// while the worker works.
func TestReplacedWorkspaceIsRemovedMeanwhile(t *testing.T) {
	folder := t.TempDir()
	fifo := filepath.Join(t.TempDir(), "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t)
	c.hello()
	c.configure(nil)
	copied := func(s *job.Spec) { s.Workspace = job.Workspace{Path: folder, Isolation: job.Copy} }
	if o := c.runResolved("a", 1, spec("echo 1 > work", copied), nil, nil); o.State != job.RunCompleted {
		t.Fatalf("outcome %+v", o)
	}
	s := spec("cat '"+fifo+"'", copied)
	p := c.permit("a", 2, s)
	c.must(ipc.MethodSubmitJob, ipc.SubmitJob{Permit: p.ID, Job: "a", Attempt: 2, Choice: shellChoice, Spec: s}, nil)
	release, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the worker has opened it
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	if !testrun.Until(t, func() bool {
		left, _ = filepath.Glob(filepath.Join(c.state, "work", "a", "discarded-*"))
		return len(left) == 0
	}) {
		t.Errorf("%s are left", left)
	}
	release.Close()
	if o := c.outcome(); o.State != job.RunCompleted || o.DiffStat != "" {
		t.Errorf("outcome %+v", o)
	}
	c.end()
}
