package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/pgtest"
)

// fleetPoll is how often is looked whether something is there.
const fleetPoll = 10 * time.Millisecond

// fleet is schedulers that share a queue in a database, each in a process of its own. They
// listen on loopback, with TLS.
type fleet struct {
	dir, program string
	store        string // address of the database
	env          []string
	token        string // of an operator
	members      []*member
}

// member is a scheduler, or a node, and what it takes to start it again.
type member struct {
	fleet  *fleet
	state  string
	env    []string
	args   []string
	url    string // "" of a node
	client *client.Client
	socket *client.Client

	cmd  *exec.Cmd
	said *tail
	stop context.CancelFunc
}

// newFleet makes a database, certificates and a token. Nothing runs yet but the server.
func newFleet(ctx context.Context, b *bench, server *pgtest.Server, name string, env ...string) (*fleet, error) {
	database, err := server.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	f := &fleet{store: server.TCP(database), env: env}
	if f.program, err = b.buildPrograms(ctx); err != nil {
		return nil, err
	}
	if f.dir, err = b.folder(name); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"ca", "init"}, {"ca", "issue", "host", "--host", "127.0.0.1"}} {
		if _, err := f.output(ctx, append(args, "--dir", f.path("ca"))...); err != nil {
			return nil, err
		}
	}
	f.token, err = f.newToken(ctx, "bench", "operate")
	return f, err
}

func (f *fleet) path(names ...string) string {
	return filepath.Join(append([]string{f.dir}, names...)...)
}

// output is what a command of the scheduler's prints that ends by itself.
func (f *fleet) output(ctx context.Context, args ...string) (string, error) {
	c, said := command(ctx, f.program, f.path("tool"), args...)
	c.Env = append(c.Env, "AGENTSCHED_FLEET__STORE="+f.store)
	out, err := c.Output()
	if err != nil {
		return "", said.told(fmt.Errorf("scheduler %s: %w", strings.Join(args, " "), err))
	}
	return strings.TrimSpace(string(out)), nil
}

func (f *fleet) newToken(ctx context.Context, name, role string) (string, error) {
	return f.output(ctx, "token", "create", name, "--role", role)
}

// add makes a scheduler, which is not started.
func (f *fleet) add(name string) (*member, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	m := &member{fleet: f, state: f.path(name), url: "https://" + address, args: []string{"serve"}}
	m.env = append([]string{
		"AGENTSCHED_FLEET__STORE=" + f.store, "AGENTSCHED_API__LISTEN=" + address,
		"AGENTSCHED_API__TLS__CERT=" + f.path("ca", "host.crt"), "AGENTSCHED_API__TLS__KEY=" + f.path("ca", "host.key"),
		"AGENTSCHED_API__RATE__PER_SECOND=1000000", "AGENTSCHED_API__RATE__BURST=1000000", // what one caller asks for is not what is measured
	}, f.env...)
	if err := os.MkdirAll(m.state, 0o700); err != nil {
		return nil, err
	}
	m.socket = client.New(filepath.Join(m.state, "scheduler.sock"))
	m.client, err = client.Dial(client.Options{URL: m.url, Token: f.token, CAFile: f.path("ca", "ca.crt")})
	f.members = append(f.members, m)
	return m, err
}

// freeAddress is a port of 127.0.0.1 that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// addNode makes a node, which is not started, with a token of its own.
func (f *fleet) addNode(ctx context.Context, name string, args ...string) (*member, error) {
	token, err := f.newToken(ctx, name, "node")
	if err != nil {
		return nil, err
	}
	file := f.path(name + ".token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		return nil, err
	}
	var urls []string
	for _, m := range f.members {
		if m.url != "" {
			urls = append(urls, m.url)
		}
	}
	m := &member{fleet: f, state: f.path(name)}
	m.args = append([]string{"node", "--server", strings.Join(urls, ","), "--token-file", file, "--ca", f.path("ca", "ca.crt")}, args...)
	f.members = append(f.members, m)
	return m, os.MkdirAll(m.state, 0o700)
}

// start starts the process.
func (m *member) start(ctx context.Context) error {
	ctx, m.stop = context.WithCancel(ctx)
	m.cmd, m.said = command(ctx, m.fleet.program, m.state, m.args...)
	m.cmd.Env = append(m.cmd.Env, m.env...)
	if err := m.cmd.Start(); err != nil {
		m.cmd = nil
		return err
	}
	return nil
}

// lead starts a scheduler, and waits until it leads.
func (m *member) lead(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		return err
	}
	return m.until(ctx, "it leads", m.leads)
}

// leads reports whether the scheduler is the one that leads.
func (m *member) leads(ctx context.Context) bool {
	st, err := m.socket.Status(ctx)
	return err == nil && st.PID == m.cmd.Process.Pid
}

// follow starts a scheduler, and waits until it stands by beside a leader: it has all
// that the leader has.
func (m *member) follow(ctx context.Context, leader *member) error {
	if err := m.start(ctx); err != nil {
		return err
	}
	return m.until(ctx, "it stands by", func(ctx context.Context) bool {
		st, err := m.socket.Status(ctx)
		return err == nil && st.PID == leader.cmd.Process.Pid
	})
}

// until waits for something.
func (m *member) until(ctx context.Context, what string, there func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, manyWait)
	defer cancel()
	for !there(ctx) {
		select {
		case <-time.After(fleetPoll):
		case <-ctx.Done():
			return m.said.told(fmt.Errorf("%s: wait until %s: %w", filepath.Base(m.state), what, context.Cause(ctx)))
		}
	}
	return nil
}

// kill kills the process; its cores end by themselves.
func (m *member) kill() error {
	if err := m.cmd.Process.Kill(); err != nil {
		return err
	}
	return m.wait()
}

// end tells the process to end, and waits until it has.
func (m *member) end() error {
	if m.cmd == nil {
		return nil
	}
	m.stop()
	return m.wait()
}

func (m *member) wait() error {
	err := m.cmd.Wait()
	m.stop()
	m.cmd = nil
	var ended *exec.ExitError
	if errors.As(err, &ended) || errors.Is(err, context.Canceled) {
		return nil // it was told to
	}
	return err
}

// close ends all, nodes first.
func (f *fleet) close() (err error) {
	for i := len(f.members) - 1; i >= 0; i-- {
		err = errors.Join(err, f.members[i].end())
	}
	return err
}

// nodesUp waits until so many nodes take jobs.
func (m *member) nodesUp(ctx context.Context, n int) error {
	return m.until(ctx, fmt.Sprintf("%d nodes are there", n), func(ctx context.Context) bool {
		st, err := m.client.Status(ctx)
		if err != nil {
			return false
		}
		up := 0
		for _, c := range st.Cores {
			if c.State == "up" && c.Node != "" {
				up++
			}
		}
		return up >= n
	})
}

const (
	lineSubmits = 100 // jobs of a round, at the leader and through the standby
	// kills of a leader; clean stops are as many as rounds.
	kills = 20
	// leadWithin is what docs/fleet.md promises.
	leadWithin = 10
)

// fleetCase is schedulers that share a queue, and nodes: how soon a client sees the first
// line of a job, and how soon another scheduler leads.
func fleetCase(ctx context.Context, b *bench) (_ []row, err error) {
	server, why := pgtest.New(pgtest.In(b.dir))
	if why != nil {
		return []row{leftOut("fleet: submitted to first line", "-", why), leftOut("fleet: takeover", "-", why)}, nil
	}
	defer func() { err = joinClose(err, server.Close) }()
	direct, passed, err := firstLines(ctx, b, server)
	if err != nil {
		return nil, fmt.Errorf("first line: %w", err)
	}
	killed, stopped, err := takeovers(ctx, b, server)
	if err != nil {
		return nil, fmt.Errorf("takeover: %w", err)
	}
	late, lead := bound{most: 150, unit: " ms"}, bound{most: leadWithin, unit: " s"}
	rows := []row{}
	for _, x := range []struct {
		what string
		s    sample
	}{{"at the leader", direct}, {"through a standby", passed}} {
		p99 := x.s.quantile(0.99)
		rows = append(rows, row{"fleet: submitted to first line, idle, " + x.what + ", p50", showMillis(x.s.median()), "-", "-", "-", "-"},
			row{fmt.Sprintf("  p99 of %d", len(x.s)), showMillis(p99), "-", fmt.Sprintf("%.1f ms", p99*1e3), late.String(), late.reached(p99 * 1e3)})
	}
	most := killed.quantile(1)
	return append(rows,
		row{"fleet: leader killed, until another answers a write, p50", fmt.Sprintf("%.2f s", killed.median()), "-", "-", "-", "-"},
		row{fmt.Sprintf("  most of %d", len(killed)), fmt.Sprintf("%.2f s", most), "-", fmt.Sprintf("%.2f s", most), lead.String(), lead.reached(most)},
		row{"  leader told to end, most of " + fmt.Sprint(len(stopped)), fmt.Sprintf("%.2f s", stopped.quantile(1)), "p50 " + fmt.Sprintf("%.2f s", stopped.median()), "-", "-", "-"},
	), nil
}

// firstLines returns the seconds from each submission by HTTPS until a client that follows
// the job sees its first line: at the leader, and through the scheduler that stands by. The
// jobs run on two nodes, and nothing else is done.
func firstLines(ctx context.Context, b *bench, server *pgtest.Server) (direct, passed sample, err error) {
	f, err := newFleet(ctx, b, server, "lines", "AGENTSCHED_FLEET__WORK=false")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = joinClose(err, f.close) }()
	leader, err := f.add("a")
	if err == nil {
		err = leader.lead(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	standby, err := f.add("b")
	if err == nil {
		err = standby.follow(ctx, leader)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"one", "two"} {
		node, err := f.addNode(ctx, name)
		if err == nil {
			err = node.start(ctx)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := leader.nodesUp(ctx, 2); err != nil {
		return nil, nil, err
	}
	for range b.rounds {
		if direct, err = firstLine(ctx, leader, direct); err == nil {
			passed, err = firstLine(ctx, standby, passed)
		}
		if err != nil {
			return nil, nil, leader.said.told(err)
		}
	}
	return direct, passed, nil
}

func firstLine(ctx context.Context, m *member, s sample) (sample, error) {
	for i := range lineSubmits {
		began := time.Now()
		jobs, err := m.client.SubmitFile(ctx, api.JobFile{Text: noop(fmt.Sprintf("line-%d", i), "echo first line")})
		if err != nil {
			return s, err
		}
		seen := false
		for x, err := range m.client.Follow(ctx, string(jobs.Jobs[0].ID), client.FollowOptions{}) {
			if err != nil {
				return s, fmt.Errorf("follow job %s: %w", jobs.Jobs[0].ID, err)
			}
			if !seen && x.Event != nil && strings.Contains(x.Event.Text, "first line") && x.Event.Kind == "text" {
				s, seen = append(s, time.Since(began).Seconds()), true
			}
		}
		if !seen {
			return s, fmt.Errorf("job %s ended without a line", jobs.Jobs[0].ID)
		}
	}
	return s, nil
}

// noop is a file of one shell job.
func noop(id, instructions string) string {
	return fmt.Sprintf("jobs:\n  - {id: %s, type: TOOL, workspace: {isolation: none}, instructions: %q}\n", id, instructions)
}

// takeovers returns the seconds from the death of a leader until the other scheduler has
// stored a job, and from when it is told to end. The one that died comes again and stands
// by before the next one dies.
func takeovers(ctx context.Context, b *bench, server *pgtest.Server) (killed, stopped sample, err error) {
	f, err := newFleet(ctx, b, server, "takeover")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = joinClose(err, f.close) }()
	leader, err := f.add("a")
	if err == nil {
		err = leader.lead(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	standby, err := f.add("b")
	if err != nil {
		return nil, nil, err
	}
	for i := range kills + b.rounds {
		if err := standby.follow(ctx, leader); err != nil {
			return nil, nil, err
		}
		began := time.Now()
		ended := make(chan error, 1)
		if i < kills {
			if err := leader.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				return nil, nil, err
			}
			go func() { ended <- leader.wait() }()
		} else {
			go func() { ended <- leader.end() }()
		}
		took, err := standby.written(ctx, began)
		err = errors.Join(err, <-ended)
		if err != nil {
			return nil, nil, standby.said.told(err)
		}
		if i < kills {
			killed = append(killed, took)
		} else {
			stopped = append(stopped, took)
		}
		leader, standby = standby, leader
	}
	return killed, stopped, nil
}

// written submits a job until it is stored by the scheduler itself, and returns how many
// seconds after began that was.
func (m *member) written(ctx context.Context, began time.Time) (took float64, err error) {
	err = m.until(ctx, "it leads", func(ctx context.Context) bool {
		_, e := m.client.SubmitFile(ctx, api.JobFile{Text: noop("after", "true")})
		took = time.Since(began).Seconds()
		return e == nil && m.leads(ctx) // else the one that ends has stored it still
	})
	return took, err
}
