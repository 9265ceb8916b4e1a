//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/pgtest"
	"github.com/agentsched/agentsched/internal/sandbox"
)

// fleet is where a plan of a fleet is played: a database, schedulers and nodes, each in
// its network namespace. What is checked when it is over is a copy of the queue.
type fleet struct {
	*scene
	fleetPlan  *fleetPlan
	net        *network
	server     *pgtest.Server
	base       *pgtest.Relay // all of the schedulers' connections to the database
	schedulers []*machine
	nodes      []*machine
	store      string // the address of its queue
	log        *claimLog
	told       []string // what has struck, and when
	previous   string   // the folder with the programs that machines begin with
	upgraded   int      // machines
}

// machine is a host of the fleet: what would lie on its disk, its network and its process.
type machine struct {
	name    string
	dir     string
	address string
	net     *netns
	args    []string // of the scheduler program
	env     []string
	// programs is the folder of the programs that it runs.
	programs string
	relays   []*pgtest.Relay // between a node and each scheduler, if its links are slow
	host     *fleetNode      // a node's

	run   *run        // the latest of its process
	stale os.FileInfo // the socket that lay there when it was started; nil: none
	down  bool        // it was ended, and not started again
	hurt  bool        // something lasts that has struck it
}

func (m *machine) state() string { return filepath.Join(m.dir, "s") }

func (m *machine) socket() string { return filepath.Join(m.state(), "scheduler.sock") }

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// instance returns what the tags of its workers begin with.
func (m *machine) instance() string { return instanceOf(m.state()) }

const (
	databaseAddress = "10.99.0.2:5432"
	doorPort        = "7433"
)

func newFleet(tb testing.TB, p *fleetPlan) (*fleet, error) {
	s, err := newScene(tb, p.plan)
	if err != nil {
		return nil, err
	}
	f := &fleet{scene: s, fleetPlan: p, log: newClaimLog(), previous: programs}
	if p.Upgrades {
		if f.previous, err = previous(); err != nil {
			return f, err
		}
	}
	if f.net, err = newNetwork(); err != nil {
		return f, err
	}
	f.runOf = f.runOnFleet
	f.store, err = f.startDatabase()
	if err != nil {
		return f, err
	}
	var addresses, urls []string
	for i := range fleetSchedulers {
		address := fmt.Sprintf("10.99.0.%d", 11+i)
		addresses, urls = append(addresses, address), append(urls, "https://"+net.JoinHostPort(address, doorPort))
	}
	if err := certify(f.file("cert.pem"), f.file("key.pem"), append(addresses, relayHost)...); err != nil {
		return f, err
	}
	for i, address := range addresses {
		m, err := f.addMachine(fmt.Sprintf("s%d", i), address, f.schedulerConfig(address))
		if err != nil {
			return f, err
		}
		m.args = []string{"serve", "--json"}
		f.schedulers = append(f.schedulers, m)
	}
	for i, slots := range p.Slots {
		m, err := f.addMachine(fmt.Sprintf("n%d", i), fmt.Sprintf("10.99.0.%d", 21+i), f.config())
		if err != nil {
			return f, err
		}
		m.host = &fleetNode{name: m.name, slots: slots}
		to := urls
		if slices.Contains(p.Slow, i) {
			if to, err = m.behindRelays(tb, addresses); err != nil {
				return f, err
			}
		}
		m.args = []string{"node", "--server", strings.Join(to, ","), "--ca", f.file("cert.pem"), "--token-file", m.path("token"),
			"--slots", fmt.Sprint(slots), "--label", "fleet=yes"}
		f.nodes = append(f.nodes, m)
	}
	return f, nil
}

func (f *fleet) file(name string) string { return filepath.Join(f.dir, name) }

// startDatabase starts the server in its namespace, and the relay before it, and returns the address of a database.
func (f *fleet) startDatabase() (string, error) {
	n, err := f.net.attach("10.99.0.2")
	if err != nil {
		return "", err
	}
	options := []pgtest.Option{pgtest.NoFsync, pgtest.Enter(n.enter)}
	if pgtest.CanClock() {
		options = append(options, pgtest.Clock(f.fleetPlan.Rate))
	}
	f.server = pgtest.Start(f.tb, options...)
	name, err := f.server.NewDatabase(f.tb.Context())
	if err != nil {
		return "", err
	}
	l, err := n.listen(databaseAddress)
	if err != nil {
		return "", err
	}
	f.base = pgtest.NewRelayAt(f.tb, l, func() (net.Conn, error) { return n.dial(f.server.Address()) })
	return f.base.Through(pgtest.Plain(f.server.TCP(name))), nil
}

// relayHost is the name by which a node behind relays knows the schedulers.
const relayHost = "127.0.0.1"

// behindRelays puts a relay before each scheduler, in the node's own namespace.
func (m *machine) behindRelays(tb testing.TB, addresses []string) (urls []string, err error) {
	for _, address := range addresses {
		l, err := m.net.listen(net.JoinHostPort(relayHost, "0"))
		if err != nil {
			return nil, err
		}
		m.relays = append(m.relays, pgtest.NewRelayAt(tb, l, func() (net.Conn, error) { return m.net.dial(net.JoinHostPort(address, doorPort)) }))
		urls = append(urls, "https://"+l.Addr().String())
	}
	return urls, nil
}

// config is that of a node; the schedulers' has more.
func (f *fleet) config() obj {
	c := f.scene.config()
	c["concurrency"] = obj{"max": 1, "per_worker": f.plan.PerKind, "each_tenant": f.plan.PerTenant}
	c["stop"] = obj{"interrupt": fleetInterrupt.String(), "terminate": fleetInterrupt.String(), "kill": fleetKill.String()}
	c["heartbeat"] = obj{"interval": "100ms", "hang_after": fleetHang.String(), "permit_validity": fleetValidity.String()}
	c["watchdog"] = obj{"stall_after": "5s"} // some work for two seconds, and a machine may be slow
	c["escalation"].(obj)["safe_stop"] = "drain"
	return c
}

func (f *fleet) schedulerConfig(address string) obj {
	c := f.config()
	c["api"] = obj{"listen": net.JoinHostPort(address, doorPort), "tls": obj{"cert": f.file("cert.pem"), "key": f.file("key.pem")}, "hosts": []string{relayHost}}
	if f.fleetPlan.Weights != nil {
		tenants := obj{}
		for tenant, weight := range f.fleetPlan.Weights {
			tenants[tenant] = obj{"weight": weight}
		}
		c["policy"] = obj{"name": "deficit", "window": "1h", "tenants": tenants}
	}
	c["fleet"] = obj{"store": f.store, "listen": net.JoinHostPort(address, "7434"), "lease": fleetLease.String(), "node_lease": fleetLease.String()}
	return c
}

func (f *fleet) addMachine(name, address string, config obj) (*machine, error) {
	m := &machine{name: name, dir: f.file(name), address: address, down: true, programs: f.previous}
	for _, sub := range []string{"s", "home", "tmp"} {
		if err := os.MkdirAll(m.path(sub), 0o700); err != nil {
			return nil, err
		}
	}
	if err := f.write(filepath.Join(name, "config.yaml"), config); err != nil {
		return nil, err
	}
	m.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + m.path("home"), "TMPDIR=" + m.path("tmp"), "LANG=C.UTF-8",
		"AGENTSCHED_SANDBOX__LEVEL=" + string(sandbox.None),
	}
	if f.plan.NoCgroup {
		m.env = append(m.env, "AGENTSCHED_NO_CGROUP=1")
	}
	if name != "s0" { // which becomes the scene's own, when the queue is copied to it
		f.states = append(f.states, m.state())
	}
	var err error
	m.net, err = f.net.attach(address)
	return m, err
}

func (m *machine) command(args ...string) []string {
	return append([]string{filepath.Join(m.programs, "scheduler"), "--state", m.state(), "--config", m.path("config.yaml")}, args...)
}

// up starts a machine's process.
func (f *fleet) up(m *machine) error {
	m.stale, _ = os.Lstat(m.socket())
	return m.net.inside(func() (err error) {
		m.run, err = startRun(m.command(m.args...), m.env, m.dir, f.marks)
		if err == nil {
			m.down = false
			f.runs = append(f.runs, m.run)
		}
		return err
	})
}

// cli runs a command of a machine to its end.
func (m *machine) cli(args ...string) (string, error) {
	var out, errs bytes.Buffer
	err := m.net.inside(func() error {
		command := m.command(args...)
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = m.env, m.dir, &out, &errs
		return cmd.Run()
	})
	if err != nil {
		return "", fmt.Errorf("scheduler %s: %w\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// client returns one of a scheduler's, by its socket, which namespaces do not part.
func (m *machine) client() *client.Client {
	return client.New(filepath.Join(m.state(), "scheduler.sock"))
}

// open starts all machines. A scheduler listens on a network only if there are tokens.
func (f *fleet) open(ctx context.Context) error {
	if err := f.makeTokens(); err != nil {
		return err
	}
	for _, m := range slices.Concat(f.schedulers, f.nodes) {
		if err := f.up(m); err != nil {
			return err
		}
	}
	if err := f.awaitLeader(ctx); err != nil {
		return err
	}
	if err := f.awaitInstances(ctx); err != nil {
		return err
	}
	return f.awaitNodes(ctx)
}

// makeTokens makes the token of each node.
func (f *fleet) makeTokens() error {
	made := func(m *machine) error {
		token, err := f.schedulers[0].cli("token", "create", m.name, "--role", "node")
		return errors.Join(err, os.WriteFile(m.path("token"), []byte(token), 0o600))
	}
	if err := made(f.nodes[0]); err != nil { // it makes the tables
		return err
	}
	errs := make([]error, len(f.nodes))
	var making sync.WaitGroup
	for i, m := range f.nodes[1:] {
		making.Go(func() { errs[i] = made(m) })
	}
	making.Wait()
	return errors.Join(errs...)
}

// submission returns a job file of the jobs of a tenant.
func (f *fleet) submission(tenant string, jobs []jobPlan) (string, error) {
	var all []obj
	for _, j := range jobs {
		if j.Tenant != tenant {
			continue
		}
		o, err := f.job(&j)
		if err != nil {
			return "", err
		}
		o["node"] = obj{"has": []string{"fleet=yes"}}
		all = append(all, o)
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(obj{"tenant": tenant, "jobs": all})
	return string(text), err
}

// close ends everything, whatever has become of it.
func (f *fleet) close() error {
	errs := []error{f.undoUntil(time.Now(), true)}
	f.calls.Wait()
	if f.net != nil {
		for _, n := range f.net.ports[min(1, len(f.net.ports)):] { // the first is the database's, which has its own end
			for _, pid := range n.processes() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	errs = append(errs, f.scene.close())
	if f.net != nil {
		errs = append(errs, f.net.close())
	}
	return errors.Join(errs...)
}
