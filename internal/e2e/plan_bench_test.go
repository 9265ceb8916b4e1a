package e2e

// What the tests of the plan share: scripts that wait for a word, workers that
// are told by a file how to behave, and what to look for in the updates.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// until is a script that waits until the file is there. The test writes it.
func until(path string) string { return "while test ! -e " + path + "; do sleep 0.05; done" }

// keeper is a job that keeps a scheduler running until b.release.
func (b *bench) keeper() obj { return shell("keeper", nil, until(b.folder("enough")), nil) }

func (b *bench) release() {
	b.t.Helper()
	b.write(b.folder("enough"), "")
}

// tomorrow is a job that keeps a scheduler running without being on any core,
// until r.endTomorrow.
func tomorrow() obj { return with(shell("tomorrow", nil, "true", nil), obj{"runnable_at": "24h"}) }

// endTomorrow cancels that job and waits for the scheduler's end.
func (r *run) endTomorrow() {
	r.b.t.Helper()
	if _, errs, code := r.b.command("cancel", "tomorrow"); code != 0 {
		r.fatalf("cancel: exit code %d\n%s", code, errs)
	}
	r.exit(1) // a job was cancelled
}

// result is a script that ends a run of the worker protocol well.
func result(answer string) string {
	return fmt.Sprintf(`echo '{"type":"result","status":"completed","answer":"%s"}'`, answer)
}

// sickly sets up a kind of worker that dies of a signal while the file is
// there, and notes in another that it did.
func (b *bench) sickly(name, sick string) {
	b.t.Helper()
	b.kind(name, "test ! -e "+sick+" || { echo $AGENTSCHED_RUN >> "+b.folder("crashes")+"; kill -SEGV $$; }\n"+result("by "+name))
}

// crashes is how often sickly workers died.
func (b *bench) crashes() int { return len(b.lines("crashes")) }

// on is a job for an agent of the kind, without a workspace.
func on(id, kind string, more obj) obj {
	j := obj{"id": id, "worker": kind, "instructions": "Do " + id + "."}
	for k, v := range more {
		j[k] = v
	}
	return j
}

// with adds fields to a job.
func with(j obj, more obj) obj {
	for k, v := range more {
		j[k] = v
	}
	return j
}

// lines returns the lines of a file of the bench; none if it is not there.
func (b *bench) lines(elem ...string) []string {
	data, err := os.ReadFile(b.folder(elem...))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// entries returns the names in a folder of the bench.
func (b *bench) entries(elem ...string) []string {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.folder(elem...), "*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return files
}

// end waits for a job's end and wants it to be in the state.
func (r *run) end(name job.Name, want job.RunState) {
	r.b.t.Helper()
	u := r.await("the end of "+string(name), func(u *api.Update) bool {
		return u.Kind == api.UpdateJob && u.Name == name && u.Entry.Terminal()
	})
	if u.State != want {
		r.fatalf("%s is %s: %s, want %s", name, u.State, u.Text, want)
	}
}

// told matches an update of a kind that says all of the words.
func told(kind api.UpdateKind, words ...string) func(*api.Update) bool {
	return func(u *api.Update) bool {
		return u.Kind == kind && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(u.Text, w) })
	}
}

// awaitTimes blocks until n updates match.
func (r *run) awaitTimes(n int, what string, match func(*api.Update) bool) {
	r.b.t.Helper()
	r.await(fmt.Sprintf("%s, %d times", what, n), func(u *api.Update) bool {
		if match(u) {
			n--
		}
		return n == 0
	})
}

// waits wants a job to wait without an attempt more than n, for a reason that
// says one of the words.
func (b *bench) waits(name string, n int, words ...string) {
	b.t.Helper()
	var last string
	b.eventually(fmt.Sprintf("%s waits for one of %q", name, words), func() bool {
		j := b.show(name)
		if j.Job.State.Terminal() || len(j.Attempts) > n {
			b.fatalf("%s is %s after %d attempts, and was to wait after %d: %s", name, j.Job.State, len(j.Attempts), n, asJSON(b.t, j))
		}
		last = j.Job.Waiting
		return j.Job.State == job.Queued && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(last, w) })
	})
}
