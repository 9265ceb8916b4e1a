package e2e

// What a server does for its store: it forgets what has ended long ago, and is
// copied while it works; the accounts outlive both.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue/sched"
)

// accounts returns what `scheduler usage` tells.
func (b *bench) accounts(args ...string) []api.Account {
	b.t.Helper()
	out, errs, code := b.command(append(append([]string{"usage"}, args...), "--json")...)
	var list struct{ Accounts []api.Account }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		b.fatalf("usage %v: exit code %d, %v\n%s%s", args, code, err, out, errs)
	}
	return list.Accounts
}

// sum adds accounts up.
func sum(list []api.Account) (total api.Account) {
	for _, a := range list {
		total.Usage = total.Usage.Add(a.Usage)
		total.Attempts += a.Attempts
		total.Completed += a.Completed
		total.Wall += a.Wall
	}
	return total
}

// balanced wants accounts to amount to what the jobs have spent, and returns it.
func (b *bench) balanced(accounts []api.Account, jobs []api.Job) api.Account {
	b.t.Helper()
	var spent job.Usage
	var wall time.Duration
	attempts, completed := 0, 0
	for _, e := range jobs {
		spent = spent.Add(e.Spent)
		wall += e.SpentTime.Std()
		attempts += e.Attempts
		if e.ExitKind == job.ExitSucceeded && e.CoalescedWith == "" {
			completed++
		}
	}
	got := sum(accounts)
	if u := got.Usage; u.InputTokens != spent.InputTokens || u.OutputTokens != spent.OutputTokens || math.Abs(u.CostUSD-spent.CostUSD) > 1e-6 {
		b.t.Errorf("the accounts amount to %s, the jobs have spent %s", asJSON(b.t, u), asJSON(b.t, spent))
	}
	if got.Attempts != int64(attempts) || got.Completed != int64(completed) || (got.Wall.Std()-wall).Abs() > time.Duration(attempts)*time.Millisecond {
		b.t.Errorf("the accounts tell of %d attempts, %d completed, %s; the jobs of %d, %d, %s", got.Attempts, got.Completed, got.Wall, attempts, completed, wall)
	}
	return got
}

// TestRetention: what ended is forgotten with its folder after its time; what is
// a dead letter, unfinished, or holds work that exists nowhere else is not, nor
// is what any of it has used.
func TestRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.open()
	b.config["retention"] = obj{"finished": "1s"}
	r := b.serve()
	b.submit(b.jobs(
		spend("spends", 1000, 0.5, nil), shell("fine", nil, "echo out", nil),
		shell("works", b.workspace(), "echo new > new.txt", nil), shell("dead", nil, "echo why >&2; exit 3", obj{"max_attempts": 1}),
		with(shell("later", nil, "true", nil), obj{"runnable_at": "24h"}), with(shell("withdrawn", nil, "true", nil), obj{"runnable_at": "24h"}),
	))
	if _, errs, code := b.command("cancel", "withdrawn"); code != 0 {
		b.fatalf("cancel: exit code %d\n%s", code, errs)
	}
	r.ends(5)
	r.stop()
	before := b.list()
	b.balanced(b.accounts(), before)
	id := map[job.Name]job.ID{}
	var newest time.Time
	for _, e := range before {
		id[e.Spec.Name] = e.ID
		if e.CompletedAt != nil && e.CompletedAt.After(newest) {
			newest = *e.CompletedAt
		}
	}
	used := sum(b.accounts())
	trees, err := filepath.Glob(filepath.Join(b.state, "work", string(id["works"]), "*", "README.md"))
	if err != nil || len(trees) != 1 {
		b.fatalf("the worktree is %v, %v", trees, err)
	}
	b.write(filepath.Join(filepath.Dir(trees[0]), "by-hand.txt"), "in no patch\n")
	b.eventually("the retention is over", func() bool { return time.Since(newest) > 1100*time.Millisecond })

	r = b.serve() // looks after the store at once
	left := func() (names []job.Name) {
		for _, e := range b.list() {
			names = append(names, e.Spec.Name)
		}
		return names
	}
	b.eventually("what ended is forgotten", func() bool { return len(left()) == 2 })
	forgotten := []job.Name{"spends", "fine", "withdrawn"}
	for _, name := range forgotten {
		for _, kind := range []string{"jobs", "work"} {
			b.gone(filepath.Join(b.state, kind, string(id[name])))
		}
	}
	r.stop()
	b.soundState()
	if names := left(); names[0] != "dead" || names[1] != "later" {
		b.fatalf("left are %v, want the dead letter and what is unfinished", names)
	}
	for _, name := range forgotten {
		if _, _, code := b.command("show", string(id[name])); code != 1 {
			t.Errorf("show of %s, which is forgotten: exit code %d", name, code)
		}
	}
	if _, err := os.Lstat(trees[0]); err != nil {
		t.Errorf("the worktree with work that exists nowhere else: %v", err)
	}
	if out, errs, code := b.command("dlq", "show", "dead"); code != 0 {
		t.Errorf("the dead letter: exit code %d\n%s%s", code, out, errs)
	}
	if _, err := os.Lstat(filepath.Join(b.state, "jobs", string(id["dead"]))); err != nil {
		t.Errorf("the dead letter's folder: %v", err)
	}
	if after := sum(b.accounts()); after.Usage != used.Usage || after.Attempts != used.Attempts {
		t.Errorf("forgetting has changed the accounts from %s to %s", asJSON(t, used), asJSON(t, after))
	}

	// Dead letters too, if that is asked for.
	b.config["retention"] = obj{"finished": "1s", "dead_letters": "1s"}
	r = b.serve()
	b.eventually("the dead letter is forgotten", func() bool { return len(left()) == 1 })
	b.gone(filepath.Join(b.state, "jobs", string(id["dead"])))
	r.stop()
	b.soundState()
}

// gone waits until a path is not there any more.
func (b *bench) gone(path string) {
	b.t.Helper()
	b.eventually(path+" is gone", func() bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestRetentionCutShort: a server that is killed while it forgets leaves nothing
// that no later one would remove.
func TestRetentionCutShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["concurrency"] = obj{"max": 8}
	r := b.serve()
	var jobs []obj
	for i := range 80 {
		jobs = append(jobs, shell(fmt.Sprintf("job-%02d", i), nil, "echo out", nil))
	}
	b.submit(b.jobs(jobs...))
	r.ends(len(jobs))
	r.stop()
	ended := time.Now()
	b.eventually("the retention is over", func() bool { return time.Since(ended) > 1100*time.Millisecond })
	b.config["retention"] = obj{"finished": "1s"}
	r = b.serve()
	c := b.client()
	b.eventually("the jobs are forgotten", func() bool {
		return kernel[sched.Entries](b, c, sched.MethodList, sched.ListRequest{Limit: 1}).Total == 0
	})
	r.kill()
	r = b.serve()
	b.eventually("their folders are gone", func() bool { return len(b.entries("s", "jobs"))+len(b.entries("s", "work")) == 0 })
	r.stop()
	b.soundState()
}

// TestBackup: a copy that is made while the server works is whole, holds what was
// acknowledged before, and can be worked on in another directory.
func TestBackup(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	// What runs when the copy is made is given out again when its claim has ended. By default that takes as long as the
	// test is patient, and next to nothing is told meanwhile.
	b.config["heartbeat"] = obj{"interval": "100ms", "hang_after": "5s", "permit_validity": "10s"}
	b.config["fleet"] = obj{"node_lease": "1s"}
	b.config["concurrency"] = obj{"max": 2}
	r := b.serve()
	c := b.client()
	b.submit(b.jobsOf("tests", "first.yaml", spenders("s", 40, 200, 0.25, nil)...))
	outside := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "acme", Payload: json.RawMessage(`[1]`)})
	b.open()
	r.ends(10)
	copied := b.folder("copy.db")
	if out, errs, code := b.command("backup", copied); code != 0 {
		b.fatalf("backup: exit code %d\n%s%s", code, out, errs)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy is %v, %v; want it to be nobody else's", info, err)
	}
	if _, errs, code := b.command("backup", copied); code == 0 {
		t.Errorf("a second backup has overwritten the first\n%s", errs)
	}
	r.ends(40)
	r.stop()
	b.soundState()
	b.balanced(b.accounts(), b.list())

	// The restored copy is a state directory of its own.
	if err := os.Mkdir(b.folder("s2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(copied, b.folder("s2", "queue.db")); err != nil {
		t.Fatal(err)
	}
	other := *b
	other.state, other.runs = b.folder("s2"), nil
	b2 := &other
	r = b2.serve()
	defer r.close()
	stored := b2.list()
	if len(stored) != 41 {
		b2.fatalf("%d jobs are in the copy, want the 40 and the one of others", len(stored))
	}
	if n := len(b2.finished()); n < 10 {
		t.Errorf("%d jobs have ended in the copy, 10 had when it was made", n)
	}
	r.ends(40 - doneAtStart(stored, r))
	if e := kernel[sched.Entry](b2, b2.client(), sched.MethodGet, sched.ByID{SchedID: outside.SchedID}); e.State != job.Queued || string(e.Payload) != `[1]` {
		t.Errorf("the entry of others: %s", asJSON(t, e))
	}
	r.stop()
	b2.soundState()
	b2.balanced(b2.accounts(), b2.list())
	for _, e := range b2.list() {
		// An attempt that ran while the copy was made is lost there; what it had used, nothing, half or all, counts.
		lost := e.Spent.Tokens() - 200
		if e.ID != outside.SchedID && (e.ExitKind != job.ExitSucceeded || lost < 0 || lost > 200*int64(e.Attempts-1) || lost%100 != 0) {
			t.Errorf("in the copy: %s", asJSON(t, e))
		}
	}
}

// doneAtStart counts the jobs that ended before the run began.
func doneAtStart(list []api.Job, r *run) int {
	n := 0
	for _, e := range list {
		if e.State.Terminal() && e.CompletedAt.Before(r.began()) {
			n++
		}
	}
	return n
}

// began is when the run's first core came up: nothing ended before it.
func (r *run) began() time.Time {
	return r.await("a core", func(u *api.Update) bool { return u.CorePID != 0 }).Time
}

// TestAccounts: whatever was killed, retried, done elsewhere or forgotten, the
// accounts amount to what the jobs have spent, by every dimension.
func TestAccounts(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	b := newBench(t)
	b.spender()
	b.open()
	// It uses something in two steps, and fails in every other attempt.
	b.kind("shaky", `echo '{"type":"usage","input_tokens":30,"output_tokens":10,"cost_usd":0.125}'; sleep 0.05
echo '{"type":"usage","input_tokens":5,"cost_usd":0.0625}'
case $AGENTSCHED_RUN in *[13579]) echo '{"type":"result","status":"failed","class":"SERVER","message":"not now"}';; *) `+result("shaken")+`;; esac`)
	b.config["breaker"] = obj{"min_requests": 1000} // its failures are no reason to wait
	many := obj{"limits": obj{"max_attempts": 100}}
	r := b.serve()
	c := b.client()
	total := 0
	for _, tenant := range []string{"alpha", "beta"} {
		var jobs []obj
		for i := range 12 {
			jobs = append(jobs, on(fmt.Sprintf("%s-shaky-%d", tenant, i), "shaky", obj{"limits": many["limits"], "model": fmt.Sprintf("m%d", i%2), "agent": fmt.Sprintf("pid:%d", i%3)}))
		}
		jobs = append(jobs, spenders(tenant, 12, 100, 0.5, many)...)
		jobs = append(jobs, shell(tenant+"-dead", nil, "exit 1", obj{"max_attempts": 2}))
		b.submit(b.jobsOf(tenant, tenant+".yaml", jobs...))
		total += len(jobs)
	}
	e := kernel[sched.Enqueued](b, c, sched.MethodEnqueue, sched.EnqueueRequest{Tenant: "alpha"})
	kernel[sched.Entries](b, c, sched.MethodClaim, sched.ClaimRequest{WorkerID: "w"})
	kernel[sched.Entry](b, c, sched.MethodComplete, sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "w", Usage: job.Usage{InputTokens: 11, CostUSD: 0.75, CostKnown: true}})
	for n := range 4 {
		if _, running := r.awaitUpdates(0, 20+random.IntN(60)); !running {
			r.fatalf("it ended")
		}
		if n%2 == 0 {
			r.killAll()
		} else {
			r.kill()
		}
		r = b.serve()
	}
	if !testrun.Moving(t, func() (left int, done bool) { left, _ = b.unfinished(); return left, left == 0 }) {
		b.fatalf("not all have ended")
	}
	r.stop()
	b.soundState()
	jobs := b.list()
	if len(jobs) != total+1 {
		b.fatalf("%d jobs, want %d", len(jobs), total+1)
	}
	b.balanced(b.accounts(), jobs)
	for _, by := range []string{"tenant", "agent", "worker", "model", "day"} {
		b.balanced(b.accounts("--by", by), jobs)
	}
	for _, a := range b.accounts("--by", "tenant") {
		var own []api.Job
		for _, e := range jobs {
			if e.Spec.Tenant == a.Tenant {
				own = append(own, e)
			}
		}
		b.balanced([]api.Account{a}, own)
	}
}
