package e2e

// Escalations on real processes: a kind of worker that crashes is put out of
// use, that lasts, and somebody is told.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// crashing sets up the kind "sickly" that dies while the returned file is
// there, isolated after a crash for the time; its breaker never opens.
func (b *bench) crashing(coolDown string) (sick string) {
	b.t.Helper()
	sick = b.folder("sick")
	b.write(sick, "")
	b.sickly("sickly", sick)
	b.config["breaker"] = obj{"min_requests": 1000}
	b.config["concurrency"] = obj{"max": 3, "per_worker": obj{"sickly": 1}} // one crash and no more
	b.config["escalation"] = obj{"worker_crashes": obj{"count": 1, "within": "1m", "cool_down": coolDown}}
	return sick
}

// isolated returns what the status lists as out of use.
func (b *bench) isolated() []string {
	b.t.Helper()
	scopes := []string{}
	for _, i := range b.status().Isolations {
		if i.Message == "" || i.Since.IsZero() {
			b.fatalf("an isolation without a word: %+v", i)
		}
		scopes = append(scopes, string(i.Scope)+" "+string(i.Cause))
	}
	return scopes
}

// patient is a job's limits if it may be tried often.
var patient = obj{"max_attempts": 50}

func isEscalation(u *api.Update) bool {
	return u.Kind == api.UpdateEscalation && u.Escalation != nil && u.Escalation.Scope == "worker:sickly"
}

// TestIsolationsReachEveryCore: a core that missed a word of what is isolated is
// told again, although nothing changes any more.
func TestIsolationsReachEveryCore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.kind("sickly", result("well"))
	ask := func(args ...string) {
		t.Helper()
		if _, errs, code := b.command(args...); code != 0 {
			b.fatalf("%v: exit code %d: %s", args, code, errs)
		}
	}
	r := b.start("run", "--core", b.fake("does not hear that nothing is isolated", true), b.jobs(b.keeper()))
	r.await("the core", func(u *api.Update) bool { return u.CorePID != 0 })
	ask("pause", "worker:sickly")
	b.submit(b.jobsOf("tests", "waits.yaml", on("waits", "sickly", nil)))
	b.waits("waits", 0, "the end of a pause")
	ask("resume", "worker:sickly")
	r.end("waits", job.RunCompleted)
	b.release()
	r.exit(0)
}

func TestCrashingKindIsIsolated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sick := b.crashing("1h")
	b.kind("steady", result("by steady"))
	file := b.jobs(b.keeper(), on("waits", "sickly", obj{"limits": patient}))
	r := b.start("run", file)
	r.await("the escalation", isEscalation)
	b.waits("waits", 1, "the end of an isolation")
	want := []string{"worker:sickly worker_crashes"}
	if got := b.isolated(); !slices.Equal(got, want) {
		r.fatalf("isolated are %v, want %v", got, want)
	}
	falls := on("falls-back", "sickly", obj{"fallback": []string{"steady"}})
	b.submit(b.jobsOf("tests", "falls.yaml", falls))
	r.end("falls-back", job.RunCompleted)
	if j := b.show("falls-back"); b.last(j).Answer != "by steady" || len(j.Attempts) != 1 {
		r.fatalf("a job with another choice: %s", asJSON(t, j))
	}

	// It outlives every process, and is there while no scheduler is.
	r.killAll()
	if got := b.isolated(); !slices.Equal(got, want) {
		b.fatalf("isolated are %v while nothing runs, want %v", got, want)
	}
	r = b.start("run", file)
	r.awaitCore(1)
	b.submit(b.jobsOf("tests", "also.yaml", on("also", "sickly", obj{"limits": patient})))
	b.waits("also", 0, "the end of an isolation")
	if got := b.isolated(); !slices.Equal(got, want) {
		r.fatalf("isolated are %v after a crash, want %v", got, want)
	}
	r.killCore() // the next one is told, too
	r.awaitCore(2)
	b.submit(b.jobsOf("tests", "third.yaml", on("third", "sickly", obj{"limits": patient})))
	b.waits("third", 0, "the end of an isolation")
	if n := b.crashes(); n != 1 {
		r.fatalf("%d crashes, want one and then none", n)
	}

	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := b.command("resume", "worker:sickly"); code != 0 || !strings.Contains(out, "worker:sickly") {
		r.fatalf("resume: exit code %d\n%s%s", code, out, errs)
	}
	for _, name := range []job.Name{"waits", "also", "third"} {
		r.end(name, job.RunCompleted)
	}
	if got := b.isolated(); len(got) > 0 {
		r.fatalf("isolated are %v after all was resumed", got)
	}
	if _, errs, code := b.command("resume", "worker:sickly"); code != 1 || !strings.Contains(errs, "not isolated") {
		r.fatalf("resume of what is in use: exit code %d, want 1\n%s", code, errs)
	}
	b.release()
	r.exit(0)
	b.soundState()
	if r.seen(isEscalation) != 0 {
		t.Errorf("the second scheduler escalated what the first had")
	}
}

// TestIsolationIsLiftedWithoutAScheduler: an operator need not start anything to
// say that it is well again.
func TestIsolationIsLiftedWithoutAScheduler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sick := b.crashing("0s") // until an operator says so
	file := b.jobs(on("waits", "sickly", obj{"limits": patient}))
	r := b.start("run", file)
	r.await("the escalation", isEscalation)
	b.waits("waits", 1, "the end of an isolation")
	r.killAll()
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := b.command("resume", "worker:sickly"); code != 0 {
		b.fatalf("resume: exit code %d\n%s%s", code, out, errs)
	}
	b.start("run", file).exit(0)
	b.completedOnce(b.show("waits"))
	b.soundState()
}

func TestIsolationCoolsDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sick := b.crashing("1s")
	r := b.start("run", b.jobs(on("waits", "sickly", obj{"limits": patient})))
	r.awaitTimes(2, "the escalation", isEscalation) // after the first cool-down it is still ill
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	r.exit(0)
	b.soundState()
	r.await("the word that it is over", told(api.UpdateEscalation, "worker:sickly is in use again"))
	j := b.show("waits")
	if b.last(j).Answer != "by sickly" || len(j.Attempts) != b.crashes()+1 || b.crashes() < 2 {
		t.Errorf("%d crashes, one before each of two isolations: %s", b.crashes(), asJSON(t, j))
	}
	for _, n := range []int{1, 2} {
		if away := j.Attempts[n].Started.Sub(*j.Attempts[n-1].Ended); away < 900*time.Millisecond {
			t.Errorf("attempt %d came %s after the crash that isolated the kind for a second", n+1, away)
		}
	}
	if got := b.isolated(); len(got) > 0 {
		t.Errorf("isolated are %v at the end", got)
	}
}

// TestEscalationIsTold: a command and a webhook get each escalation once.
func TestEscalationIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.crashing("1h")
	var mu sync.Mutex
	var posted []string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		posted = append(posted, fmt.Sprintf("%s %s %v %s", r.Method, r.Header.Get("Content-Type"), err, body))
	}))
	defer hook.Close()
	escalation := b.config["escalation"].(obj)
	escalation["command"] = []string{"/bin/sh", "-c", "cat >> " + b.folder("told") + "; echo >> " + b.folder("told")}
	escalation["webhook"] = hook.URL + "/told"
	r := b.start("run", b.jobs(b.keeper(), on("waits", "sickly", obj{"limits": patient})))
	escalated := r.await("the escalation", isEscalation).Escalation
	b.waits("waits", 1, "the end of an isolation")
	b.eventually("both are told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(posted) > 0 && len(b.lines("told")) > 0
	})
	if _, errs, code := b.command("cancel", "waits"); code != 0 {
		r.fatalf("cancel: exit code %d\n%s", code, errs)
	}
	b.release()
	r.exit(1)
	b.soundState()

	text, err := os.ReadFile(b.folder("told"))
	if err != nil {
		t.Fatal(err)
	}
	var payload isolation.Escalation
	if err := json.Unmarshal(text, &payload); err != nil { // also if it is there twice
		t.Fatalf("the command got %q: %v", text, err)
	}
	if payload.Scope != "worker:sickly" || payload.Cause != isolation.CauseWorkerCrashes || payload.Action != isolation.IsolateKind || payload.Message != escalated.Message || !payload.Until.Equal(escalated.Until) {
		t.Errorf("the command was told %s, the updates say %+v", text, escalated)
	}
	if want := "POST application/json <nil> " + strings.TrimSpace(string(text)); len(posted) != 1 || strings.TrimSpace(posted[0]) != want {
		t.Errorf("the webhook got %q, want once %q", posted, want)
	}
}

// TestEscalationToNobody: a command that hangs and a webhook that never answers
// end at their time limit, with all that they started, and harm nothing.
func TestEscalationToNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	sick := b.crashing("1h")
	gone := make(chan struct{}, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client is gone
		<-r.Context().Done()
		gone <- struct{}{}
	}))
	defer hook.Close()
	escalation := b.config["escalation"].(obj)
	escalation["command"] = []string{"/bin/sh", "-c", `trap "" INT TERM HUP; echo x >> ` + b.folder("called") + "; sleep " + b.unique() + " & sleep " + b.unique() + "; sleep " + b.unique()}
	escalation["webhook"] = hook.URL
	escalation["timeout"] = "3s" // in which a busy machine starts the shell that says that it was called
	r := b.start("run", b.jobs(b.keeper(), on("waits", "sickly", obj{"limits": patient})))
	r.await("the escalation", isEscalation)
	b.eventually("the command runs", func() bool { return len(b.lines("called")) > 0 })
	b.submit(b.jobsOf("tests", "meanwhile.yaml", shell("meanwhile", nil, "true", nil)))
	r.end("meanwhile", job.RunCompleted)
	select {
	case <-gone:
	case <-testrun.After(t):
		r.fatalf("the scheduler still waits for the webhook")
	}
	// It is tried once more, and then given up; then nothing of it is alive.
	b.eventually("the command was called twice", func() bool { return len(b.lines("called")) == 2 })
	b.eventually("the command is dead", func() bool { return len(sleeping(b.stray)) == 0 })
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := b.command("resume", "worker:sickly"); code != 0 {
		r.fatalf("resume: exit code %d\n%s", code, errs)
	}
	r.end("waits", job.RunCompleted)
	b.release()
	r.exit(0)
	b.soundState()
	if n := len(b.lines("called")); n != 2 {
		t.Errorf("the command was called %d times", n)
	}
}

// TestLatestWinsInALoop: a folder whose runs are replaced again and again is
// locked; another folder is not.
func TestLatestWinsInALoop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["escalation"] = obj{"latest_wins": obj{"count": 2, "within": "1m", "cool_down": "1h"}}
	mine := b.folder("mine")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	in := func(id string, script string) obj {
		return with(shell(id, obj{"path": mine, "isolation": "direct"}, script, nil), obj{"key": "k", "on_duplicate": "latest_wins"})
	}
	r := b.start("run", b.jobs(b.keeper(), in("a", "echo up; sleep 300")))
	r.await("a", onText("a", "up"))
	b.submit(b.jobsOf("tests", "b.yaml", in("b", "echo up; sleep 300")))
	r.await("b", onText("b", "up"))
	b.submit(b.jobsOf("tests", "c.yaml", in("c", "true")))
	real, err := filepath.EvalSymlinks(mine)
	if err != nil {
		t.Fatal(err)
	}
	scope := isolation.WorkspaceScope(real)
	r.await("the escalation", func(u *api.Update) bool {
		return u.Escalation != nil && u.Escalation.Scope == string(scope) && u.Escalation.Cause == string(isolation.CauseLatestWins)
	})
	// c may have begun before the core heard of it; what comes next does not.
	b.submit(b.jobsOf("tests", "d.yaml", shell("d", obj{"path": mine, "isolation": "direct"}, "true", nil),
		shell("elsewhere", nil, "true", nil)))
	r.end("elsewhere", job.RunCompleted)
	b.waits("d", 0, "the end of an isolation")
	if _, errs, code := b.command("resume", string(scope)); code != 0 {
		r.fatalf("resume: exit code %d\n%s", code, errs)
	}
	r.end("d", job.RunCompleted)
	r.end("c", job.RunCompleted)
	b.release()
	r.exit(1) // two were cancelled
	b.soundState()
}
