package e2e

// Several schedulers that share a queue in PostgreSQL: who leads, and what becomes of
// jobs when that changes.

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/internal/objects/objectstest"
	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/job"
)

// newFleet returns benches whose schedulers share a queue. What one of them holds that is
// dead is given out again some 12 s later.
func newFleet(t *testing.T, n int) (benches []*bench, server *pgtest.Server) {
	t.Helper()
	server = pgtest.Start(t)
	name, err := server.NewDatabase(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		b := newBench(t)
		b.unheld()
		b.config["fleet"] = obj{"store": server.TCP(name)}
		b.config["heartbeat"] = obj{"interval": "500ms", "hang_after": "3s", "permit_validity": "6s"}
		b.config["stop"] = obj{"interrupt": "200ms", "terminate": "200ms", "kill": "1s"}
		benches = append(benches, b)
	}
	return benches, server
}

// inBucket has files of attempts lie in a bucket.
func (b *bench) inBucket(s *objectstest.Server) {
	b.env = append(b.env, "S3_KEY="+objectstest.AccessKey, "S3_SECRET="+objectstest.SecretKey)
	b.config["fleet"].(obj)["artifacts"] = obj{"s3": obj{
		"endpoint": s.URL, "bucket": objectstest.Bucket, "prefix": "fleet", "region": objectstest.Region, "access_key": "env:S3_KEY", "secret_key": "env:S3_SECRET",
	}}
}

// serveBeside starts a scheduler while another one leads, and waits until it answers.
func (b *bench) serveBeside(leader *run) *run {
	b.t.Helper()
	r := b.start("serve")
	c := b.client()
	b.eventually("a standby answers on its socket, and has the leader asked", func() bool {
		st, err := c.Status(b.t.Context())
		return err == nil && st.PID == leader.cmd.Process.Pid
	})
	return r
}

// marks is a job that writes down when each of its runs begins and ends, and goes on until
// a file is there.
func marks(name, file, enough string) obj {
	return shell(name, nil, "echo $AGENTSCHED_RUN begins >> "+file+"; echo begun; "+until(enough)+"; echo $AGENTSCHED_RUN ends >> "+file, nil)
}

// TestFleetTakeOver: the leader's host dies in the midst of a run; another scheduler leads,
// and the job goes on there when the dead one's run cannot be alive any more. What was
// acknowledged is there.
func TestFleetTakeOver(t *testing.T) {
	t.Parallel()
	fleet, _ := newFleet(t, 2)
	a, b := fleet[0], fleet[1]
	files := objectstest.Start(t)
	for _, x := range fleet {
		x.inBucket(files)
	}
	a.write(a.configFile(), asJSON(t, a.config))
	if _, errs, code := a.command("--config", a.configFile(), "token", "create", "early", "--role", "read"); code != 0 {
		t.Fatalf("make a token before a scheduler has served: %s", errs)
	}
	ra := a.serve()
	rb := b.serveBeside(ra)
	if out, errs, code := b.command("token", "ls"); code != 0 || !strings.Contains(out, "early") {
		t.Errorf("the token of before is not the fleet's: %s%s", out, errs)
	}
	if _, errs, code := b.command("upgrade"); code == 0 || !strings.Contains(errs, "stands by") || !strings.Contains(errs, "restart it") {
		t.Errorf("upgrade of a standby: exit code %d\n%s", code, errs)
	}
	rb.stop()
	if _, err := os.Lstat(filepath.Join(b.state, "scheduler.sock")); !os.IsNotExist(err) {
		t.Errorf("a standby that was told to end leaves its socket: %v", err)
	}
	rb = b.serveBeside(ra)
	file, enough := a.folder("ran"), a.folder("go")
	// What is submitted to one that stands by is passed on, and read there at once.
	b.submit(a.jobsOf("website", "one.yaml", shell("quick", a.workspace(), "echo done | tee answer.txt", nil), marks("long", file, enough)))
	if j := b.show("quick"); j.Job.State == job.Completed && len(j.Attempts) == 0 {
		t.Errorf("read after it was submitted: %s", asJSON(t, j))
	}
	ra.end("quick", job.RunCompleted)
	ra.await("the long one", onText("long", "begun"))
	ra.killAll()
	a.write(enough, "")
	rb.end("long", job.RunCompleted)
	if j := b.show("long"); len(j.Attempts) < 2 || !j.Attempts[0].Lost || j.Job.Counted != 1 {
		t.Errorf("the run of the dead host counts: %s", asJSON(t, j))
	}
	b.completedOnce(b.show("quick"))
	if err := os.RemoveAll(filepath.Join(a.state, "jobs", string(b.show("quick").Job.ID))); err != nil { // it is on the dead host
		t.Fatal(err)
	}
	if patch, said, code := b.command("diff", "quick"); code != 0 || !strings.Contains(patch, "+done") {
		t.Errorf("the patch of the dead host's job: code %d, %s\n%s", code, said, patch)
	}
	if !slices.ContainsFunc(files.Requests(), func(r string) bool { return strings.HasPrefix(r, "GET ") && strings.Contains(r, "/1/patch.") }) {
		t.Errorf("the patch does not come from the bucket, which was asked for %q", files.Requests())
	}
	b.submit(b.jobsOf("website", "two.yaml", shell("later", nil, "true", nil)))
	rb.end("later", job.RunCompleted)
	// Who comes back stands by, and leads when the other is told to end.
	again := a.start("serve")
	rb.stop()
	again.awaitCore(1)
	a.completedOnce(a.show("later"))
	again.stop()
	endedOnce(t, file)
	a.noProcess()
	b.noProcess()
}

// endedOnce looks at what marks has written: several runs may have begun, and the last of
// them, alone, has ended.
func endedOnce(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := len(lines) - 1
	if last < 2 || strings.Count(string(text), " ends") != 1 || strings.TrimSuffix(lines[last], " ends") != strings.TrimSuffix(lines[last-1], " begins") {
		t.Errorf("runs:\n%s", text)
	}
}

// TestFleetFrozen: the leader stands still for longer than its lease, and another one
// takes its place; when it goes on, it ends its run before the job is given out again, and
// stands by.
func TestFleetFrozen(t *testing.T) {
	t.Parallel()
	fleet, server := newFleet(t, 2)
	a, b := fleet[0], fleet[1]
	for _, x := range fleet { // what the database needs to start again, on a busy machine too
		x.config["fleet"].(obj)["lease"] = "20s"
	}
	ra := a.serve()
	file, enough := a.folder("ran"), a.folder("go")
	a.submit(a.jobsOf("website", "one.yaml", marks("long", file, enough)))
	ra.await("the long one", onText("long", "begun"))
	rb := b.serveBeside(ra)
	ra.signal(syscall.SIGSTOP) // the scheduler alone: its core notices that nobody renews its permits
	rb.awaitCore(1)
	ra.signal(syscall.SIGCONT)
	rb.await("the long one, elsewhere", onText("long", "begun"))
	// A database that restarts in the midst of that costs nothing.
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	a.write(enough, "")
	rb.end("long", job.RunCompleted)
	rb.stop()
	ra.awaitCore(2) // the first one leads again
	a.completedOnce(a.show("long"))
	endedOnce(t, file)
	ra.stop()
	a.noProcess()
	b.noProcess()
}

// TestFleetWaits: a scheduler that starts before its database waits for it, and says so; it can be told to stop
// meanwhile. Cut off somewhere in its start, it goes on. What no waiting mends ends it at once.
func TestFleetWaits(t *testing.T) {
	t.Parallel()
	fleet, server := newFleet(t, 1)
	b := fleet[0]
	waits := func(r *run) {
		t.Helper()
		b.eventually("it waits for the database", func() bool { return strings.Contains(r.stderr.String(), "waiting for the database") })
	}
	if err := server.Stop(pgtest.Fast); err != nil {
		t.Fatal(err)
	}
	r := b.start("serve")
	waits(r)
	r.signal(syscall.SIGHUP)
	r.signal(syscall.SIGTERM)
	r.exit(0)
	r = b.start("serve")
	waits(r)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	b.submit(b.jobsOf("website", "one.yaml", shell("one", nil, "true", nil)))
	r.end("one", job.RunCompleted)
	if n := strings.Count(r.stderr.String(), "waiting for the database"); n > 3 { // refused, started, and once more
		t.Errorf("it says %d times that it waits:\n%s", n, r.stderr.String())
	}
	r.stop()
	good := b.config["fleet"].(obj)["store"].(string)
	relay := pgtest.NewRelay(t, server.Address())
	b.config["fleet"].(obj)["store"] = relay.Through(pgtest.Plain(good))
	for n := 200; n <= 6200; n += 1500 {
		sprung := relay.CutAfter(n)
		r = b.start("serve")
		r.awaitCore(1)
		select {
		case <-sprung:
		default:
			t.Errorf("it says less than %d bytes to the database until it leads", n)
		}
		r.stop()
	}
	b.config["fleet"].(obj)["store"] = strings.Replace(good, "?", "_not_there?", 1)
	r = b.start("serve")
	r.exit(2)
	if text := r.stderr.String(); !strings.Contains(text, "does not exist") || strings.Contains(text, "waiting") {
		t.Errorf("a database that is not there:\n%s", text)
	}
}
