package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/queue/postgres"
)

const (
	// simulated nodes, and the runs that each holds.
	simulated, runsEach = 1000, 10
	nodeRuns            = simulated * runsEach
	heldFor             = 30 * time.Second // of a round, while nothing begins or ends
	manyWait            = 10 * time.Minute // for what many jobs or nodes take
	jobsAtOnce          = 1000             // of a request
)

// nodesCase is a leader with many nodes, each with its own connection: what it takes while
// they hold their runs, and how many jobs a second it hands out and completes. The nodes are
// played by a process of their own, by the code of a real one.
func nodesCase(ctx context.Context, b *bench) (_ []row, err error) {
	what := fmt.Sprintf("fleet: leader with %d nodes and %d runs", simulated, nodeRuns)
	server, why := pgtest.New(pgtest.In(b.dir))
	if why != nil {
		return []row{leftOut(what, "-", why)}, nil
	}
	defer func() { err = joinClose(err, server.Close) }()
	f, err := newFleet(ctx, b, server, "nodes", "AGENTSCHED_FLEET__WORK=false", "AGENTSCHED_QUEUE__MAX_JOBS=100000",
		fmt.Sprint("AGENTSCHED_WORKERS__SHELL__MAX_CONCURRENT=", nodeRuns), fmt.Sprint("AGENTSCHED_CONCURRENCY__MAX=", nodeRuns))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, f.close) }()
	leader, err := f.add("a")
	if err == nil {
		err = leader.lead(ctx)
	}
	if err != nil {
		return nil, err
	}
	before, _, err := memoryOf(leader.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	n, err := playNodes(ctx, b, f, leader)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinClose(err, n.close) }()
	if err := n.until(ctx, "all nodes are welcomed", func(f figures) bool { return f.Up == simulated }); err != nil {
		return nil, leader.said.told(err)
	}
	came := time.Since(began)

	began = time.Now()
	if err := leader.submitMany(ctx, nodeRuns); err != nil {
		return nil, err
	}
	if err := n.until(ctx, "all runs are held", func(f figures) bool { return f.Held == nodeRuns }); err != nil {
		return nil, leader.said.told(err)
	}
	begun := rate(nodeRuns, time.Since(began))
	var s holding
	for range min(b.rounds, 3) {
		if err := s.round(ctx, leader, n); err != nil {
			return nil, err
		}
	}

	began = time.Now()
	if err := n.say("end"); err != nil {
		return nil, err
	}
	if err := leader.idle(ctx); err != nil {
		return nil, err
	}
	ended := rate(nodeRuns, time.Since(began))
	var through sample
	for range min(b.rounds, 3) {
		began = time.Now()
		if err := leader.submitMany(ctx, nodeRuns); err != nil {
			return nil, err
		}
		if err := leader.idle(ctx); err != nil {
			return nil, err
		}
		through = append(through, rate(nodeRuns, time.Since(began)))
	}
	plain := func(what, ours, note string) row { return row{what, ours, note, "-", "-", "-"} }
	return []row{
		plain(what+", CPU of its process", fmt.Sprintf("%.0f %% of one %s", s.cpu.median()*100, showSpread(s.cpu)), "-"),
		plain("  memory of its process", showSize(s.resident), "without nodes "+showSize(sample{before})),
		plain("  messages a second, from and to the nodes", fmt.Sprintf("%.0f and %.0f", s.received.median(), s.sent.median()), fmt.Sprintf("%.0f and %.0f kB/s", s.in.median()/1e3, s.out.median()/1e3)),
		plain("  all nodes connected, from the start of their process", fmt.Sprintf("%.1f s", came.Seconds()), "-"),
		plain("  submitted to all held; held to all recorded as ended", fmt.Sprintf("%.0f/s", begun), fmt.Sprintf("%.0f/s", ended)),
		plain("  jobs that end at once, submitted to recorded", showRate(through), "-"),
	}, nil
}

// holding is what the scheduler does while runs are held: parts of a CPU, bytes, and counts a
// second.
type holding struct{ cpu, resident, sent, received, in, out sample }

func (s *holding) round(ctx context.Context, leader *member, n *played) error {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	pid := leader.cmd.Process.Pid
	cpu, err := cpuOf(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	from, err := n.ask("stat")
	if err != nil {
		return err
	}
	select {
	case <-time.After(heldFor):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	to, err := n.ask("stat")
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	used, err := cpuOf(pid)
	if err != nil {
		return err
	}
	resident, _, err := memoryOf(pid)
	if err != nil {
		return err
	}
	if to.Held != nodeRuns {
		return fmt.Errorf("%d of %d runs are still held", to.Held, nodeRuns)
	}
	each := func(s *sample, from, to int64) { *s = append(*s, float64(to-from)/took) }
	s.cpu, s.resident = append(s.cpu, (used-cpu).Seconds()/took), append(s.resident, resident)
	each(&s.received, from.Sent, to.Sent)
	each(&s.sent, from.Received, to.Received)
	each(&s.in, from.Out, to.Out)
	each(&s.out, from.In, to.In)
	return nil
}

// cpuOf returns the CPU time that a process has used, without its children's.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on Linux
	_, after, _ := strings.Cut(string(text), ") ")
	var sum time.Duration
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// submitMany submits n jobs, some in each request.
func (m *member) submitMany(ctx context.Context, n int) error {
	for i := 0; i < n; i += jobsAtOnce {
		var text strings.Builder
		text.WriteString("jobs:\n")
		for k := range min(jobsAtOnce, n-i) {
			fmt.Fprintf(&text, "  - {id: j-%d, type: TOOL, worker: shell, workspace: {isolation: none}, instructions: 'true'}\n", i+k)
		}
		if _, err := m.client.SubmitFile(ctx, api.JobFile{Text: text.String()}); err != nil {
			return m.said.told(err)
		}
	}
	return nil
}

// idle waits until nothing is queued and nothing runs.
func (m *member) idle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, manyWait)
	defer cancel()
	for {
		st, err := m.client.Status(ctx)
		if err != nil {
			return m.said.told(err)
		}
		ready := 0
		for _, c := range st.Ready {
			ready += c.Depth
		}
		if st.Running == 0 && ready == 0 {
			return nil
		}
		select {
		case <-time.After(5 * fleetPoll):
		case <-ctx.Done():
			return fmt.Errorf("%d jobs run and %d are queued: %w", st.Running, ready, context.Cause(ctx))
		}
	}
}

// played is the process that plays the nodes: bench/cmd/manynodes.
type played struct {
	cmd  *exec.Cmd
	said *tail
	in   io.WriteCloser
	out  *bufio.Reader
}

// figures are those of bench/cmd/manynodes.
type figures struct {
	Up, Held, Ended         int
	Sent, Received, Out, In int64
}

// playNodes starts the nodes, each with a token. What they have to tell lies in memory: their
// disks would be others than the scheduler's.
func playNodes(ctx context.Context, b *bench, f *fleet, leader *member) (_ *played, err error) {
	program := filepath.Join(filepath.Dir(f.program), "manynodes")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/manynodes").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the nodes (run this inside bench/): %w\n%s", err, out)
	}
	file := f.path("tokens")
	if err := f.writeTokens(ctx, file); err != nil {
		return nil, err
	}
	spools, err := os.MkdirTemp("/dev/shm", "compare-nodes-")
	if err != nil {
		return nil, err
	}
	n := &played{said: &tail{}}
	n.cmd = exec.CommandContext(ctx, program, "-server", leader.url, "-ca", f.path("ca", "ca.crt"), "-tokens", file, "-dir", spools, "-slots", fmt.Sprint(runsEach))
	n.cmd.Stderr = n.said
	if n.in, err = n.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	n.out = bufio.NewReader(out)
	return n, n.cmd.Start()
}

// writeTokens makes a token for each node.
func (f *fleet) writeTokens(ctx context.Context, file string) error {
	where, err := postgres.ParseWhere(f.store, os.Getenv)
	if err != nil {
		return err
	}
	db, err := postgres.Connect(ctx, postgres.Config{Where: where, Folder: f.path("tokens.d"), Log: zerolog.Nop(), Self: postgres.Member{Instance: "compare"}})
	if err != nil {
		return err
	}
	defer db.Close()
	tokens, err := access.OpenTokens(ctx, db.Documents())
	if err != nil {
		return err
	}
	var text strings.Builder
	for i := range simulated {
		_, token, err := tokens.Create(ctx, fmt.Sprintf("node-%04d", i), access.Node, 0)
		if err != nil {
			return err
		}
		text.WriteString(token + "\n")
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

func (n *played) say(command string) error { _, err := n.ask(command); return err }

// ask sends a command and returns the answer.
func (n *played) ask(command string) (f figures, err error) {
	if _, err := fmt.Fprintln(n.in, command); err != nil {
		return f, n.said.told(err)
	}
	line, err := n.out.ReadBytes('\n')
	if err != nil {
		return f, n.said.told(fmt.Errorf("the nodes say nothing: %w", err))
	}
	return f, json.Unmarshal(line, &f)
}

// until waits for something.
func (n *played) until(ctx context.Context, what string, there func(figures) bool) error {
	ctx, cancel := context.WithTimeout(ctx, manyWait)
	defer cancel()
	for {
		f, err := n.ask("stat")
		if err != nil || there(f) {
			return err
		}
		select {
		case <-time.After(5 * fleetPoll):
		case <-ctx.Done():
			return n.said.told(fmt.Errorf("wait until %s: %+v: %w", what, f, context.Cause(ctx)))
		}
	}
}

// close ends the nodes, and removes their spools.
func (n *played) close() error {
	err := n.in.Close()
	var ended *exec.ExitError
	if e := n.cmd.Wait(); !errors.As(e, &ended) {
		err = errors.Join(err, e)
	}
	for i, arg := range n.cmd.Args {
		if arg == "-dir" {
			err = errors.Join(err, os.RemoveAll(n.cmd.Args[i+1]))
		}
	}
	return err
}
