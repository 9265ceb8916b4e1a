// Command manynodes plays many nodes (`scheduler node`) in one process, for measurements of the
// scheduler that they work for. Each has its own connection, session and spool, by the code of
// a real node; its agentcore is played: it takes every run and holds it, or ends it at once.
//
//	manynodes -server https://127.0.0.1:7433 -ca ca.crt -tokens tokens -dir DIR
//
// The file of tokens has one a line. Commands are lines on standard input, and each is answered
// by a line of JSON on standard output, a figures: "stat"; "end", which ends the runs
// that are held and from then on each at once; "hold". It ends with standard input.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/node"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/internal/wire"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "manynodes:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	var p play
	server := flag.String("server", "", "addresses of schedulers, with commas between")
	ca := flag.String("ca", "", "file of the certificates to trust")
	tokens := flag.String("tokens", "", "file with a node's token a line")
	flag.StringVar(&p.dir, "dir", "", "folder for spools")
	flag.IntVar(&p.slots, "slots", 10, "jobs at once on each node")
	flag.Parse()
	if p.servers, err = wire.ParseAddresses(*server); err != nil {
		return fmt.Errorf("-server: %w", err)
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return err
	}
	p.tls = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	if !p.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("-ca: %s has no certificate", *ca)
	}
	text, err := os.ReadFile(*tokens)
	if err != nil {
		return err
	}
	p.began = time.Now()
	ctx, cancel := context.WithCancelCause(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(errors.New("told to end"))
	for i, token := range strings.Fields(string(text)) {
		h, err := p.host(i, token)
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := h.Node.Run(ctx); ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "manynodes: node %d: %v\n", i, err)
			}
		})
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "end":
			p.mode(true)
		case "hold":
			p.mode(false)
		}
		if err := out.Encode(p.figures()); err != nil {
			return err
		}
	}
	return nil
}

// play is what all nodes have in common.
type play struct {
	servers []*url.URL
	tls     *tls.Config
	dir     string
	slots   int
	began   time.Time
	traffic traffic

	mu    sync.Mutex // guards what follows
	hosts []*host
	up    int
	ended int
	ends  bool // runs end at once
}

// figures are what is there now, and what was counted since the start.
type figures struct {
	Up       int   `json:"up"`       // nodes whose core was started: they were welcomed
	Held     int   `json:"held"`     // runs
	Ended    int   `json:"ended"`    // runs
	Sent     int64 `json:"sent"`     // TLS records with data, from the nodes: a message each, if it is small
	Received int64 `json:"received"` // the same, to the nodes
	Out      int64 `json:"out"`      // bytes
	In       int64 `json:"in"`
}

func (p *play) figures() figures {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := figures{Up: p.up, Ended: p.ended}
	for _, h := range p.hosts {
		h.mu.Lock()
		f.Held += len(h.held)
		h.mu.Unlock()
	}
	f.Sent, f.Received, f.Out, f.In = p.traffic.sent.Load(), p.traffic.received.Load(), p.traffic.out.Load(), p.traffic.in.Load()
	return f
}

// mode sets whether runs end at once, those that are held too.
func (p *play) mode(ends bool) {
	p.mu.Lock()
	p.ends = ends
	hosts := p.hosts
	p.mu.Unlock()
	if !ends {
		return
	}
	for _, h := range hosts {
		for _, r := range h.take() {
			h.end(r, job.Outcome{State: job.RunCompleted})
		}
	}
}

// host is a node, its own supervisor, and the core that is played.
type host struct {
	*node.Node
	play    *play
	handler supervisor.Handler
	core    *supervisor.Core
	own     *ipc.Peer // the core's end

	mu   sync.Mutex
	held map[held]time.Time // by when it began
}

// held is a run.
type held struct {
	id      job.ID
	attempt int
}

func (p *play) host(i int, token string) (_ *host, err error) {
	h := &host{play: p, held: map[held]time.Time{}}
	dir := filepath.Join(p.dir, strconv.Itoa(i))
	h.Node, err = node.New(node.Config{
		Servers: p.servers, Token: func() (string, error) { return token, nil }, TLS: p.tls, DialContext: p.traffic.dial,
		Spool: filepath.Join(dir, "spool"), Cores: 1, Instance: job.InstanceID(fmt.Sprintf("%08x", i)), Version: "played", Log: zerolog.New(os.Stderr).Level(zerolog.ErrorLevel),
		Attempt: func(id job.ID, n int) string { return filepath.Join(dir, "jobs", string(id), strconv.Itoa(n)) },
		Clock:   func() time.Duration { return time.Since(p.began) },
		Inventory: func(context.Context) node.Inventory {
			return node.Inventory{Host: fmt.Sprint("host-", i), OS: "linux", Arch: "amd64", CPUs: 8, Slots: p.slots, Sandbox: "none",
				Workers: []node.Worker{{Kind: "shell", Version: "1", Ready: true}}}
		},
		Adapt:     func(c ipc.Configure) ipc.Configure { return c },
		Supervise: func(s supervisor.Handler) node.Supervisor { h.handler = s; return h },
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.hosts = append(p.hosts, h)
	p.mu.Unlock()
	return h, nil
}

// metricsEvery is how often a core that does nothing new tells how it fares.
const metricsEvery = 10 * time.Second

// Run implements node.Supervisor: the core is up until ctx ends.
func (h *host) Run(ctx context.Context) error {
	near, far := net.Pipe()
	theirs := ipc.NewPeer(near, near, ipc.Config{Name: "core"})
	h.own = ipc.NewPeer(far, far, ipc.Config{Name: "node", Handler: played{h}})
	var peers sync.WaitGroup
	for _, x := range []*ipc.Peer{theirs, h.own} {
		peers.Go(func() { x.Run(context.Background()) }) //nolint:errcheck // it is stopped
	}
	h.core = supervisor.Join(supervisor.Away{Index: 1, PID: os.Getpid(), Peer: theirs, Info: ipc.HelloResult{
		Protocol: ipc.ProtocolVersion, Version: "played", PID: os.Getpid(), Started: time.Now(), PermitsLapse: true, Adapters: []string{"shell"},
	}})
	h.handler.CoreUp(h.core)
	h.play.mu.Lock()
	h.play.up++
	h.play.mu.Unlock()
	metrics := time.NewTicker(metricsEvery)
	defer metrics.Stop()
	for more := true; more; {
		select {
		case <-metrics.C:
			h.tell(ipc.NotifyMetrics, ipc.Metrics{Stage: "normal", Metrics: json.RawMessage("{}")})
		case <-ctx.Done():
			more = false
		}
	}
	theirs.Stop(nil)
	h.own.Stop(nil)
	peers.Wait()
	h.handler.CoreDown(h.core, supervisor.ErrReplaced)
	return context.Cause(ctx)
}

// Hurry implements node.Supervisor.
func (h *host) Hurry() {}

// Reconfigure implements node.Supervisor.
func (h *host) Reconfigure(ctx context.Context) error {
	return h.core.Call(ctx, ipc.MethodConfigure, h.handler.Settings(h.core), nil)
}

// Restart implements node.Supervisor.
func (h *host) Restart(context.Context, int, bool) error { return nil }

// Resume implements node.Supervisor: the core is in no crash loop.
func (h *host) Resume(int) bool { return false }

// tell tells the scheduler something, by the node and its spool.
func (h *host) tell(method string, x any) {
	params, err := json.Marshal(x)
	if err != nil {
		panic(err) // plain structs can be written
	}
	h.handler.CoreNotify(h.core, method, params)
}

// take returns the runs that are held, and forgets them.
func (h *host) take() (list []held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.held {
		list = append(list, r)
	}
	clear(h.held)
	return list
}

// event tells that a run has come into a state.
func (h *host) event(r held, seq int64, s job.RunState) {
	h.tell(ipc.NotifyWorkerEvent, ipc.WorkerEvent{Event: job.Event{Job: r.id, Attempt: r.attempt, Seq: seq, Time: time.Now().UTC(), Kind: job.EventState, State: s}})
}

func (h *host) end(r held, o job.Outcome) {
	o.StartedAt, o.EndedAt = time.Now().UTC(), time.Now().UTC()
	h.tell(ipc.NotifyJobCompleted, ipc.JobCompleted{Job: r.id, Attempt: r.attempt, Outcome: o})
	h.play.mu.Lock()
	h.play.ended++
	h.play.mu.Unlock()
}

// played answers what a scheduler asks a core.
type played struct{ *host }

// HandleNotify implements ipc.Handler.
func (played) HandleNotify(context.Context, string, json.RawMessage) {}

// HandleCall implements ipc.Handler.
func (h played) HandleCall(_ context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case ipc.MethodRequestPermit:
		var x ipc.PermitRequest
		if err := json.Unmarshal(params, &x); err != nil {
			return nil, err
		}
		until := time.Now().Add(time.Hour)
		return ipc.PermitAnswer{Permit: &ipc.Permit{ID: job.NewPermitID(), Job: x.Job, Attempt: x.Attempt, ExpiresAt: until, Deadline: until}}, nil
	case ipc.MethodSubmitJob:
		var x ipc.SubmitJob
		if err := json.Unmarshal(params, &x); err != nil {
			return nil, err
		}
		h.begin(held{x.Job, x.Attempt})
	case ipc.MethodCancelJob:
		var x ipc.CancelJob
		if err := json.Unmarshal(params, &x); err != nil {
			return nil, err
		}
		r := held{x.Job, x.Attempt}
		h.mu.Lock()
		_, there := h.held[r]
		delete(h.held, r)
		h.mu.Unlock()
		if there {
			h.end(r, job.Outcome{State: job.RunCancelled, Class: x.Class, Message: x.Reason})
		}
	case ipc.MethodSetGrants:
		return ipc.SetGrantsResult{}, nil
	}
	return ipc.Empty{}, nil
}

// begin begins a run, and ends it if that is the mode.
func (h *host) begin(r held) {
	h.event(r, 1, job.Running)
	h.play.mu.Lock()
	ends := h.play.ends
	h.play.mu.Unlock()
	if ends {
		h.end(r, job.Outcome{State: job.RunCompleted})
		return
	}
	h.mu.Lock()
	h.held[r] = time.Now()
	h.mu.Unlock()
}
