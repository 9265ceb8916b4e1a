package agentcore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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
