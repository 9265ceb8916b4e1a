package e2e

// What the tests of faults share: where randomness comes from, a crowd of jobs
// to do harm to, and what must hold of it however much harm was done.

import (
	"database/sql"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // to look into the store behind its back

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// newRand returns the test's randomness and prints how to get it again.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testrun.Seed(t), 0))
}

// awaitUpdates waits for n more updates than there were at from, and returns
// how many there are then; false if the scheduler ended before.
func (r *run) awaitUpdates(from, n int) (int, bool) {
	r.b.t.Helper()
	timer := testrun.NewTimer(r.b.t, testrun.Patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		have, more := len(r.updates), r.more
		r.mu.Unlock()
		if have >= from+n {
			return have, true
		}
		select {
		case <-more:
		case <-r.ended:
			return have, false
		case <-timer.C:
			r.fatalf("%d updates, no %d more", have, n)
		}
	}
}

// linuxOnly skips a test of what is promised on Linux and best effort elsewhere.
func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("promised on Linux only")
	}
}

// unique returns a duration for `sleep` that no other sleep of this machine
// has, and has the bench look for it at its end.
func (b *bench) unique() string {
	word := fmt.Sprintf("6%02d.%d%06d", len(b.stray), os.Getpid(), uniques.Add(1)) // none is the beginning of another
	b.stray = append(b.stray, word)
	return word
}

// uniques counts what unique has returned.
var uniques atomic.Int64

// direct returns a new folder of the bench as a workspace to work in directly.
func (b *bench) direct(name string) (dir string, workspace obj) {
	b.t.Helper()
	dir = filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	return dir, obj{"path": dir, "isolation": "direct"}
}

// shell returns a job for the shell worker that may do anything.
func shell(id string, workspace obj, script string, limits obj) obj {
	j := obj{"id": id, "worker": "shell", "instructions": script, "capabilities": []string{"read", "edit", "run_commands"}}
	if workspace != nil {
		j["workspace"] = workspace
	}
	if limits != nil {
		j["limits"] = limits
	}
	return j
}

// crowdSize is how many jobs a crowd has; half of them work in worktrees, half
// in folders of their own.
const crowdSize = 20

// crowdLines is how many lines each job of a crowd writes.
const crowdLines = 3

// crowd writes a job file of small jobs. Each writes its run's tag into
// lines.txt again and again, with time to be killed in between.
func (b *bench) crowd() string {
	script := fmt.Sprintf("for i in $(seq %d); do echo $AGENTSCHED_RUN >> lines.txt; echo line $i; sleep 0.04; done", crowdLines)
	var jobs []obj
	for i := range crowdSize {
		name, workspace := crowdName(i), b.workspace()
		if i%2 == 1 {
			_, workspace = b.direct(name)
		}
		jobs = append(jobs, shell(name, workspace, script, obj{"max_attempts": 1000}))
	}
	return b.jobs(jobs...)
}

func crowdName(i int) string { return fmt.Sprintf("job-%02d", i) }

// checkCrowd checks that every job of the crowd was completed exactly once,
// whatever was killed, and that nothing is left of the killing.
func (b *bench) checkCrowd() {
	b.t.Helper()
	if n, total := b.unfinished(); n != 0 || total != crowdSize {
		b.fatalf("%d jobs, of which %d are unfinished; want %d and none", total, n, crowdSize)
	}
	attempts := 0
	for i := range crowdSize {
		j := b.show(crowdName(i))
		b.completedOnce(j)
		last := j.Attempts[len(j.Attempts)-1]
		attempts += len(j.Attempts)
		wrote := b.linesOf(i, b.last(j))
		tag := fmt.Sprintf("%s/%s/%d", b.instance(), j.Job.ID, last.Number)
		// A worktree starts afresh with each attempt; in a folder, lines of
		// earlier attempts may stand, but none comes after the last one's.
		if i%2 == 0 && len(wrote) != crowdLines || len(wrote) < crowdLines {
			b.fatalf("%s wrote %d lines, want %d:\n%s", j.Job.Spec.Name, len(wrote), crowdLines, strings.Join(wrote, "\n"))
		}
		for n, line := range slices.Backward(wrote) {
			if own := n >= len(wrote)-crowdLines; own != (line == tag) {
				b.fatalf("%s completed as %s, but wrote:\n%s", j.Job.Spec.Name, tag, strings.Join(wrote, "\n"))
			}
		}
	}
	b.t.Logf("%d jobs, %d attempts", crowdSize, attempts)
	b.soundState()
}

// linesOf returns the tags that the job's work holds.
func (b *bench) linesOf(i int, o *job.Outcome) []string {
	b.t.Helper()
	path, prefix := filepath.Join(b.dir, crowdName(i), "lines.txt"), ""
	if i%2 == 0 {
		prefix = "+"
		k := slices.IndexFunc(o.Artifacts, func(a job.Artifact) bool { return a.Name == job.ArtifactPatch })
		if k < 0 {
			b.fatalf("%s left no patch: %+v", crowdName(i), o)
		}
		path = o.Artifacts[k].Path
	}
	data, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if tag, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok && strings.HasPrefix(tag, b.instance()) {
			lines = append(lines, tag)
		}
	}
	return lines
}

// completedOnce checks that a job's result was recorded exactly once: one
// attempt completed, and none came after it.
func (b *bench) completedOnce(j api.JobDetail) {
	b.t.Helper()
	if j.Job.State != job.Completed || j.Job.ExitKind != job.ExitSucceeded || len(j.Attempts) == 0 {
		b.fatalf("job %s is %s %s after %d attempts: %s", j.Job.Spec.Name, j.Job.State, j.Job.ExitKind, len(j.Attempts), j.Job.DeadLetter)
	}
	for i, a := range j.Attempts {
		last := i == len(j.Attempts)-1
		if a.Number != i+1 || (a.State == job.RunCompleted) != last || a.Ended == nil {
			b.fatalf("job %s: attempt %d of %d is number %d, %s, ended %v", j.Job.Spec.Name, i+1, len(j.Attempts), a.Number, a.State, a.Ended)
		}
	}
}

// soundState checks that nothing is left of a run that has ended: no process,
// no cgroup, no socket, and that store and repository are whole.
func (b *bench) soundState() {
	b.t.Helper()
	b.noProcess()
	if left := cgroupsOf(b.instance()); len(left) > 0 {
		b.fatalf("cgroups left: %s", strings.Join(left, ", "))
	}
	if _, err := os.Lstat(filepath.Join(b.state, "scheduler.sock")); err == nil {
		b.fatalf("the socket was left")
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.state, "queue.db")+"?mode=ro")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	var unfinished int
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		b.fatalf("integrity check of the store: %q, %v", verdict, err)
	}
	if err := db.QueryRow("SELECT count(*) FROM attempts WHERE ended_at IS NULL").Scan(&unfinished); err != nil || unfinished != 0 {
		b.fatalf("%d attempts are recorded as running, %v", unfinished, err)
	}
	if out := b.git("fsck", "--no-progress"); strings.Contains(out, "error") || strings.Contains(out, "missing") {
		b.fatalf("git fsck: %s", out)
	}
	if out := b.git("status", "--porcelain"); out != "" {
		b.fatalf("the user's own tree was touched:\n%s", out)
	}
	for line := range strings.Lines(b.git("worktree", "list", "--porcelain")) {
		if strings.HasPrefix(line, "prunable") || strings.HasPrefix(line, "locked") {
			b.fatalf("a broken worktree is left: %s", line)
		}
	}
}

// cgroupsOf lists the cgroup directories that carry the instance's name.
func cgroupsOf(instance string) []string {
	var found []string
	mounts, _ := os.ReadFile("/proc/self/mountinfo") // other systems have none
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) >= 5 {
			_ = filepath.WalkDir(fields[4], func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() && strings.Contains(d.Name(), instance) {
					found = append(found, path)
				}
				return nil // what vanishes meanwhile is not left
			})
			break
		}
	}
	return found
}

// onText matches a line that a job has printed.
func onText(name job.Name, text string) func(*api.Update) bool {
	return func(u *api.Update) bool {
		return u.Name == name && u.Event != nil && u.Event.Kind == job.EventText && strings.Contains(u.Event.Text, text)
	}
}

// eventually waits for what gives no signal to a stranger: it looks again and
// again, for as long as a test is patient.
func (b *bench) eventually(what string, holds func() bool) {
	b.t.Helper()
	if !testrun.Until(b.t, holds) {
		b.fatalf("it is not so: %s", what)
	}
}
