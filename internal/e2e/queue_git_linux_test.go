package e2e

// A server's own git commands.

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestServerOwnsItsGit: every git that a server runs, to look at what a trigger
// submits and to forget what has ended, is run as the host of its processes has
// it, in a session of its own. The host takes any other child for an orphan and
// reaps it, so that git would now and then seem to fail.
func TestServerOwnsItsGit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.folder("bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.write(b.folder("bin", "git"), fmt.Sprintf(`#!/bin/sh
read -r _ _ _ parent _ session _ < /proc/$$/stat
echo "$$:$session:$parent" >> %s
exec %s "$@"
`, b.folder("gits"), git))
	if err := os.Chmod(b.folder("bin", "git"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.env[0] = "PATH=" + b.folder("bin") + ":" + os.Getenv("PATH")
	b.config["retention"] = obj{"finished": "1s"}
	b.config["triggers"] = obj{"often": obj{"every": "1s", "job": b.jobs(shell("works", b.workspace(), "echo new > new.txt", nil))}}
	r := b.serve()
	r.ends(1)
	r.stop()
	ended := b.finished() // not what the stop has cut short, which ends later
	newest := *ended[len(ended)-1].CompletedAt
	b.eventually("the retention is over", func() bool { return time.Since(newest) > 1100*time.Millisecond })
	b.config["triggers"] = obj{}
	r = b.serve()
	for i := range ended {
		b.gone(b.folder("s", "work", string(ended[i].ID)))
	}
	r.stop()
	b.soundState()

	byServers := map[string]bool{} // what the two have asked git to do
	for _, line := range b.lines("gits") {
		f := strings.Split(line, ":")
		if f[0] != f[1] {
			t.Errorf("git was run beside the host of processes: %s", line)
		}
		for _, r := range b.runs {
			if f[2] == fmt.Sprint(r.cmd.Process.Pid) {
				byServers[f[2]] = true
			}
		}
	}
	if len(byServers) != 2 {
		t.Errorf("git was run by %d of the two servers\n%s", len(byServers), strings.Join(b.lines("gits"), "\n"))
	}
}
