package e2e

// Hosts that run jobs for a scheduler on another one.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// nodeBench is the machine of a node: its state directory and its process.
type nodeBench struct {
	*bench
	name string
	run  *run
}

// newQueue returns a scheduler that takes nodes, at an address that stays the same over its
// restarts. Runs on nodes last for as long as a busy machine may take to bring a scheduler back.
func newQueue(t *testing.T, set ...func(*bench)) (b *bench, base string, r *run) {
	b = newBench(t)
	quickLeases(b)
	b.listenTCP()
	for _, f := range set {
		f(b)
	}
	r = b.serve()
	base, _ = b.link()
	b.config["api"].(obj)["listen"] = strings.TrimPrefix(base, "http://")
	return b, base, r
}

func quickLeases(b *bench) {
	b.unheld()
	b.config["fleet"] = obj{"node_lease": "1s"}
	b.config["heartbeat"] = obj{"interval": "500ms", "hang_after": "3s", "permit_validity": "2m"}
	b.config["stop"] = obj{"interrupt": "200ms", "terminate": "200ms", "kill": "1s"}
}

// node adds a node to a queue at base.
func (b *bench) node(name, base string, more ...string) *nodeBench {
	b.t.Helper()
	return b.nodeWithin(nil, name, base, more...)
}

// nodeWithin adds one that is started by a command, which bench.within describes.
func (b *bench) nodeWithin(within []string, name, base string, more ...string) *nodeBench {
	b.t.Helper()
	n := b.nodeBeside(name)
	n.within = within
	n.up(base, more...)
	return n
}

// nodeBeside makes one that is not started.
func (b *bench) nodeBeside(name string) *nodeBench {
	b.t.Helper()
	n := &nodeBench{bench: newBench(b.t), name: name}
	quickLeases(n.bench)
	n.config["workers"] = b.config["workers"]
	n.write(filepath.Join(n.dir, "token"), b.token(name, "node"))
	return n
}

// up starts the node, and waits until its core is up at the scheduler.
func (n *nodeBench) up(base string, more ...string) {
	n.t.Helper()
	n.write(n.configFile(), asJSON(n.t, n.config))
	n.run = newRun(n.bench, append([]string{"--state", n.state, "--config", n.configFile(), "--server", base, "--token-file", filepath.Join(n.dir, "token"), "node"}, more...))
	n.runs = append(n.runs, n.run)
}

// die ends the node with all that it has, as the loss of its host would.
func (n *nodeBench) die() {
	n.t.Helper()
	n.run.kill()
	for _, p := range n.aliveProcs() {
		if err := syscall.Kill(p.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			n.t.Error(err)
		}
	}
	n.noProcess()
}

// onNode is a job of marks for a node.
func onNode(j obj, node obj) obj {
	j["node"] = node
	return j
}

// awaitNode waits until a node's core takes jobs.
func (r *run) awaitNode(name string) {
	r.b.t.Helper()
	r.await("node "+name, func(u *api.Update) bool {
		return u.Kind == api.UpdateCore && strings.Contains(u.Text, "of node "+name+" is up")
	})
}

// TestNodes: jobs go to the nodes that they require; a scheduler that dies and comes again finds them running; one
// whose node dies goes on elsewhere.
func TestNodes(t *testing.T) {
	t.Parallel()
	b, base, r := newQueue(t)
	one := b.node("one", base, "--slots", "2", "--label", "gpu=yes")
	two := b.node("two", base, "--slots", "2", "--label", "gpu=no", "--label", "spare")
	r.awaitNode("one")
	r.awaitNode("two")
	file, enough := b.folder("ran"), b.folder("go")
	gpu := obj{"has": []string{"gpu=yes"}}
	b.submit(b.jobsOf("website", "one.yaml",
		onNode(shell("quick", nil, "echo done; echo $AGENTSCHED_RUN", nil), obj{"name": "two"}),
		onNode(marks("long", file, enough), gpu),
		onNode(shell("never", nil, "true", nil), obj{"has": []string{"docker"}})))
	r.end("quick", job.RunCompleted)
	if j := b.show("quick"); len(j.Attempts) != 1 || j.Attempts[0].Node != "two" {
		t.Errorf("the job for node two: %s", asJSON(t, j))
	}
	r.await("the long one", onText("long", "begun"))
	r.killAll() // the scheduler, with its cores
	r = b.serve()
	r.awaitNode("one")
	b.write(enough, "")
	r.end("long", job.RunCompleted)
	if j := b.show("long"); len(j.Attempts) != 1 || j.Attempts[0].Node != "one" {
		t.Errorf("the job that ran while the scheduler was away: %s", asJSON(t, j))
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "begins") != 1 || strings.Count(string(text), "ends") != 1 {
		t.Errorf("its runs: %q, %v", text, err)
	}
	if j := b.show("never"); j.Job.State != job.Queued || j.Job.Status.Waiting == nil || !strings.Contains(j.Job.Status.Waiting.Text, "docker") {
		t.Errorf("the job for which there is no node: %s", asJSON(t, j.Job))
	}

	// A node that dies with its runs.
	file, enough = b.folder("ran2"), b.folder("go2")
	b.submit(b.jobsOf("website", "two.yaml", onNode(marks("moves", file, enough), gpu)))
	r.await("the one that moves", onText("moves", "begun"))
	one.die()
	b.nodes("rm", "one", "--force") // it is known to be dead before its lease and all that follows are over
	three := b.node("three", base, "--slots", "1", "--label", "gpu=yes", "--label", "spare")
	r.awaitNode("three")
	b.write(enough, "")
	r.end("moves", job.RunCompleted)
	if j := b.show("moves"); len(j.Attempts) != 2 || !j.Attempts[0].Lost || j.Attempts[0].Node != "one" || j.Attempts[1].Node != "three" || j.Job.Counted != 1 {
		t.Errorf("the job whose node died: %s", asJSON(t, j))
	}
	endedOnce(t, file)
	commandNodes(b, r)
	for _, n := range []*nodeBench{two, three} {
		n.run.signal(syscall.SIGTERM)
		n.run.exit(0)
	}
	r.stop()
	for _, n := range []*nodeBench{one, two, three} {
		n.noProcess()
	}
}

// nodes runs a command of the group nodes, which is to end with code 0.
func (b *bench) nodes(args ...string) string {
	b.t.Helper()
	out, errs, code := b.command(append([]string{"nodes"}, args...)...)
	if code != 0 {
		b.fatalf("nodes %q: exit code %d\n%s%s", args, code, out, errs)
	}
	return out
}

// commandNodes drains the node, two or three, that has a job, which goes on on the other one.
func commandNodes(b *bench, r *run) {
	b.t.Helper()
	file, enough := b.folder("ran3"), b.folder("go3")
	b.submit(b.jobsOf("website", "three.yaml", onNode(marks("leaves", file, enough), obj{"has": []string{"spare"}})))
	r.await("the one that leaves", onText("leaves", "begun"))
	from := b.show("leaves").Attempts[0].Node
	if out := b.nodes("show", from); !strings.Contains(out, "1 of ") || !strings.Contains(out, "connected") || !strings.Contains(out, from+"/1") {
		b.t.Errorf("nodes show %s:\n%s", from, out)
	}
	b.nodes("drain", from, "--mode", "stop", "--why", "a new kernel", "--wait")
	r.await("the one that left", onText("leaves", "begun"))
	b.write(enough, "")
	r.end("leaves", job.RunCompleted)
	j := b.show("leaves")
	if len(j.Attempts) != 2 || j.Attempts[1].Node == from || j.Attempts[1].Node == "" || j.Job.Counted != 1 {
		b.t.Errorf("the job whose node was drained: %s", asJSON(b.t, j))
	}
	endedOnce(b.t, file)
	if out := b.nodes("ls"); !strings.Contains(out, "a new kernel") {
		b.t.Errorf("nodes ls:\n%s", out)
	}
	if out, _, code := b.command("nodes", "rm", from); code != 2 {
		b.t.Errorf("a node that is connected is removed: exit code %d\n%s", code, out)
	}
	b.nodes("uncordon", from)
	if out := b.nodes("ls"); strings.Contains(out, "a new kernel") || strings.Contains(out, "one ") {
		b.t.Errorf("nodes ls in the end:\n%s", out)
	}
	named := map[string]bool{}
	for _, x := range b.records() {
		named[x.Target] = true
	}
	for _, path := range []string{from + "/drain", from + "/uncordon", from, "one"} {
		if !named["/v1/nodes/"+path] {
			b.t.Errorf("the audit log has no record of /v1/nodes/%s", path)
		}
	}
}

// TestNodesTakeOver: the leader of several schedulers dies, and the next one finds what runs on nodes; a leader that
// is told to end leaves it running.
func TestNodesTakeOver(t *testing.T) {
	t.Parallel()
	fleet, _ := newFleet(t, 2)
	var servers []string
	for i, b := range fleet {
		listen := net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 20+os.Getpid()%200, 1+os.Getpid()/200%200, 1+i), "7433")
		b.config["fleet"].(obj)["node_lease"], b.config["fleet"].(obj)["work"] = "2s", false
		b.config["heartbeat"].(obj)["permit_validity"] = "2m" // a busy machine may take its time to have another leader
		b.config["api"] = obj{"listen": listen}
		servers = append(servers, "http://"+listen)
	}
	a, b := fleet[0], fleet[1]
	ra := a.serve()
	rb := b.serveBeside(ra)
	n := a.node("one", strings.Join(servers, ","), "--slots", "2")
	ra.awaitNode("one")
	file, enough, enough2 := a.folder("ran"), a.folder("go"), a.folder("go2")
	here := obj{"name": "one"}
	a.submit(a.jobsOf("website", "one.yaml", onNode(marks("long", file, enough), here), onNode(marks("longer", a.folder("ran2"), enough2), here)))
	ra.await("the long one", onText("long", "begun"))
	ra.await("the longer one", onText("longer", "begun"))
	a.submit(a.jobsOf("website", "anywhere.yaml", shell("anywhere", nil, "echo what it printed", nil))) // but not on the host of a scheduler
	ra.killAll()
	rb.awaitNode("one")
	a.write(enough, "")
	rb.end("long", job.RunCompleted)
	rb.end("anywhere", job.RunCompleted)
	again := a.start("serve")
	rb.stop()
	again.awaitNode("one")
	a.write(enough2, "")
	again.end("longer", job.RunCompleted)
	for _, name := range []string{"long", "longer", "anywhere"} {
		if j := a.show(name); len(j.Attempts) != 1 || j.Attempts[0].Node != "one" {
			t.Errorf("the job that ran under several leaders: %s", asJSON(t, j))
		}
		a.completedOnce(a.show(name))
	}
	// What it printed lies where it ran, and where the one that led then was; any scheduler has it.
	printed, err := a.client().Artifact(t.Context(), string(a.show("anywhere").Job.ID), 1, job.ArtifactStdout)
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	if text, err := io.ReadAll(printed); err != nil || string(text) != "what it printed\n" {
		t.Errorf("what a job under another leader printed: %q, %v", text, err)
	}
	n.run.signal(syscall.SIGTERM)
	n.run.exit(0)
	again.stop()
	a.noProcess()
	b.noProcess()
	n.noProcess()
}

// TestNodesStream: the leader dies while a stage streams on a node. The next leader has a worker begin anew behind what is
// acknowledged: each event has its outputs in the log once, and the first worker's attempt does not count.
func TestNodesStream(t *testing.T) {
	t.Parallel()
	fleet, _ := newFleet(t, 2)
	var servers []string
	for i, b := range fleet {
		listen := net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", 20+os.Getpid()%200, 1+os.Getpid()/200%200, 11+i), "7433") // TestComposePlayed has those from 101 on
		b.config["fleet"].(obj)["node_lease"], b.config["fleet"].(obj)["work"] = "2s", false
		b.config["heartbeat"].(obj)["permit_validity"] = "2m" // a busy machine may take its time to have another leader
		b.config["api"] = obj{"listen": listen}
		b.streamer()
		servers = append(servers, "http://"+listen)
	}
	a, b := fleet[0], fleet[1]
	ra := a.serve()
	rb := b.serveBeside(ra)
	n := a.node("one", strings.Join(servers, ","), "--slots", "4")
	ra.awaitNode("one")
	const events = 10
	a.hold(4)
	a.submit(a.streaming(events, 0, 2, nil))
	a.at(4)
	ra.killAll()
	rb.awaitNode("one")
	a.letGo(4)
	rb.end("sink", job.RunCompleted)
	if got := b.published("double"); !slices.Equal(got, doubles(events)) {
		t.Errorf("published was %v", got)
	}
	if got := b.published("total"); len(got) != 1 {
		t.Errorf("the end was published as %v", got)
	}
	if j := b.show("twice"); j.Job.ExitKind != job.ExitSucceeded || len(j.Attempts) < 2 || j.Job.Counted > 1 {
		t.Errorf("the stage: %s", asJSON(t, j))
	}
	rb.stop()
	n.run.signal(syscall.SIGTERM)
	n.run.exit(0)
	for _, b := range []*bench{a, b, n.bench} {
		b.noProcess()
	}
}
