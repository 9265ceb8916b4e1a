package shell_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/shell"
	"github.com/agentsched/agentsched/worker/workertest"
)

// A script that may run any command is in nobody's list of processes, and in no folder. It
// can read itself, and so can what it starts.
func TestScriptIsAFileInMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have none")
	}
	task := newTask(t, "echo the-script; cat \"$0\"")
	task.Scratch = filepath.Join(t.TempDir(), "never", "made")
	task.Home = filepath.Join(t.TempDir(), "neither")
	if !(shell.Adapter{}).Folderless(task) {
		t.Fatal("it asks for folders")
	}
	s, err := shell.Adapter{}.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Command()
	if strings.Contains(strings.Join(c.Args, " "), "the-script") {
		t.Errorf("arguments %q", c.Args)
	}
	_, r := workertest.Drive(t, s, nil)
	if r.Class != job.NoError || r.Answer != "the-script\n"+task.Instructions {
		t.Errorf("result %+v", r)
	}
	if _, err := c.Files[0].Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the script is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(task.Scratch)); !os.IsNotExist(err) {
		t.Errorf("a folder was made: %v", err)
	}
}

// A program that is not known as a shell gets a file that it can take along.
func TestScriptOfAnUnknownShellIsAFile(t *testing.T) {
	task := newTask(t, "echo $0")
	task.Scratch = filepath.Join(t.TempDir(), "scratch")
	own := filepath.Join(t.TempDir(), "own-shell")
	if err := os.Symlink("/bin/sh", own); err != nil {
		t.Fatal(err)
	}
	task.Settings.Command = []string{own}
	s, err := shell.Adapter{}.Start(task)
	if err != nil {
		t.Fatal(err)
	}
	if _, r := workertest.Drive(t, s, nil); r.Class != job.NoError || r.Answer != filepath.Join(task.Scratch, "script") {
		t.Errorf("result %+v", r)
	}
}
