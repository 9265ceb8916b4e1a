package queuetest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Linearizable lets goroutines of several processes enqueue, claim, complete,
// release, cancel, expire and reclaim at random on one store, and kills some of
// the processes in the middle. Each process opens the store for itself, which deposes
// the others: whoever is refused for that takes the store over again. Whatever they saw must be what a queue that does
// one thing after the other would have answered, in some order in which each
// thing happens between its call and its return; what a dead process had called
// may have happened or not. See Herlihy and Wing, Linearizability, TOPLAS 1990.
func Linearizable(t *testing.T, seed uint64, rounds int, place func() string, open Opener) {
	random := rand.New(rand.NewPCG(seed, 1))
	for round := range rounds {
		history := observe(t, open, place(), random)
		result, info := porcupine.CheckOperationsVerbose(queueModel(), history, 5*time.Minute)
		if result != porcupine.Ok {
			file := filepath.Join(os.TempDir(), fmt.Sprintf("linear-%d.html", seed))
			t.Fatalf("round %d: %d operations are %s; drawn in %s (%v)", round, len(history), result, file, porcupine.VisualizePath(queueModel(), info, file))
		}
		if round == 0 {
			checkTheChecker(t, history)
		}
	}
}

// checkTheChecker makes sure that a history which no queue can have is refused:
// one in which an entry was claimed twice.
func checkTheChecker(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	for i, op := range history {
		out := op.Output.(linearOut)
		if op.Input.(linearIn).Verb != "claim" || out.Pending || len(out.Claimed) == 0 {
			continue
		}
		forged := slices.Clone(history)
		twice := op
		twice.ClientId, twice.Call, twice.Return = op.ClientId, op.Return+1, op.Return+2
		forged = slices.Insert(forged, i+1, twice)
		if result, _ := porcupine.CheckOperationsVerbose(queueModel(), forged, time.Minute); result != porcupine.Illegal {
			t.Errorf("a history in which %v are claimed twice is found %s", out.Claimed, result)
		}
		return
	}
	t.Error("no claim in the history gave anything")
}

// linearIn is what was called, linearOut what came back.
type linearIn struct {
	Verb     string    `json:"verb"`
	ID       job.ID    `json:"id,omitempty"`
	Priority int       `json:"priority,omitempty"`
	Runnable int64     `json:"runnable,omitempty"` // ticks, as all times here
	Deadline int64     `json:"deadline,omitempty"` // 0 none
	Now      int64     `json:"now,omitempty"`
	Max      int       `json:"max,omitempty"`
	IDs      []job.ID  `json:"ids,omitempty"`
	Fence    job.Fence `json:"fence,omitempty"`
}

type linearOut struct {
	Pending bool           `json:"pending,omitempty"` // nobody lived to see it
	Error   string         `json:"error,omitempty"`
	Claimed []linearClaim  `json:"claimed,omitempty"`
	State   job.EntryState `json:"state,omitempty"`
}

type linearClaim struct {
	ID    job.ID    `json:"id"`
	Fence job.Fence `json:"fence"`
}

// linearLine is a line of what a process tells.
type linearLine struct {
	Client int        `json:"client"`
	At     int64      `json:"at"` // nanoseconds of the clock that all processes share
	In     *linearIn  `json:"in,omitempty"`
	Out    *linearOut `json:"out,omitempty"`
}

const (
	linearProcesses = 4
	linearClients   = 2  // of each process
	linearOps       = 12 // of each client
	linearLease     = 2  // ticks
)

// observe lets the processes work and returns what they told, in the order of
// the calls.
func observe(t *testing.T, open Opener, path string, random *rand.Rand) []porcupine.Operation {
	t.Helper()
	first, err := open(t.Context(), path) // so that none has to migrate
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []linearLine
	var readers sync.WaitGroup
	for p := range linearProcesses {
		deadAfter := 0 // lines
		if p > 0 && random.IntN(2) == 0 {
			deadAfter = 1 + random.IntN(2*linearClients*linearOps)
		}
		seed := random.Uint64()
		readers.Go(func() {
			told := runLinear(t, path, p, seed, deadAfter)
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, told...)
		})
	}
	readers.Wait()
	return operations(lines)
}

// operations pairs calls and returns.
func operations(lines []linearLine) []porcupine.Operation {
	slices.SortStableFunc(lines, func(a, b linearLine) int { return cmp.Compare(a.At, b.At) })
	open := map[int]*porcupine.Operation{}
	var all []*porcupine.Operation
	for _, l := range lines {
		switch {
		case l.In != nil:
			// A call without a return may happen at any time after it.
			op := &porcupine.Operation{ClientId: l.Client, Input: *l.In, Call: l.At, Output: linearOut{Pending: true}, Return: 1 << 62}
			open[l.Client] = op
			all = append(all, op)
		case l.Out != nil && open[l.Client] != nil:
			open[l.Client].Output, open[l.Client].Return = *l.Out, l.At
			delete(open, l.Client)
		}
	}
	list := make([]porcupine.Operation, len(all))
	for i, op := range all {
		list[i] = *op
	}
	return list
}

// runLinear runs one process and returns the lines that it told; it is killed
// after so many, unless that is 0.
func runLinear(t *testing.T, path string, process int, seed uint64, deadAfter int) (told []linearLine) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), linearChildVariable+"="+fmt.Sprintf("%d %d %s", process, seed, path))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	out := bufio.NewReader(stdout)
	for {
		text, err := out.ReadString('\n')
		if err != nil {
			break
		}
		var l linearLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Errorf("process %d told %q: %v", process, text, err)
		}
		if told = append(told, l); len(told) == deadAfter {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil && deadAfter == 0 {
		t.Errorf("process %d: %v", process, err)
	}
	return told
}

// linearChildVariable makes the test binary one of the processes: its number,
// seed and store.
const linearChildVariable = "AGENTSCHED_TEST_LINEAR"

func linearChild(open Opener, arg string) int {
	number, rest, _ := strings.Cut(arg, " ")
	seedText, path, _ := strings.Cut(rest, " ")
	var process int
	var seed uint64
	fmt.Sscan(number, &process)
	fmt.Sscan(seedText, &seed)
	p := &linearProcess{open: open, path: path}
	if err := p.takeOver(nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var print sync.Mutex
	var clients sync.WaitGroup
	for n := range linearClients {
		id := process*linearClients + n
		c := linearClient{id: id, process: p, print: &print, random: rand.New(rand.NewPCG(seed, uint64(n)))}
		clients.Go(c.run)
	}
	clients.Wait()
	for _, s := range p.opened {
		if err := s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

// linearProcess has the store that the clients of a process share.
type linearProcess struct {
	open   Opener
	path   string
	mu     sync.Mutex
	opened []queue.Store // the last is in use
}

func (p *linearProcess) store() queue.Store {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened[len(p.opened)-1]
}

// takeOver opens the store again, unless another client has after deposed was.
func (p *linearProcess) takeOver(deposed queue.Store) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.opened) > 0 && p.opened[len(p.opened)-1] != deposed {
		return nil
	}
	s, err := p.open(context.Background(), p.path)
	if err == nil {
		p.opened = append(p.opened, s)
	}
	return err
}

type linearClient struct {
	id      int
	process *linearProcess
	print   *sync.Mutex
	random  *rand.Rand
	made    []job.ID
	held    []linearClaim
}

func (c *linearClient) run() {
	for n := range linearOps {
		in := c.choose(n)
		c.tell(linearLine{In: &in})
		out := c.do(in)
		c.tell(linearLine{Out: &out})
	}
}

func (c *linearClient) tell(l linearLine) {
	c.print.Lock()
	defer c.print.Unlock()
	l.Client = c.id
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	l.At = at.Nano()
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Println(string(text)); err != nil {
		os.Exit(1)
	}
}

// choose draws what to do next. Each client has a few priorities, moments and
// ids to do it with, so that they meet.
func (c *linearClient) choose(n int) linearIn {
	now := int64(1 + n/3)
	switch draw := c.random.IntN(20); {
	case draw < 6 || n == 0:
		in := linearIn{Verb: "enqueue", ID: job.ID(fmt.Sprintf("c%02d-%02d", c.id, n)), Priority: c.random.IntN(3), Runnable: now + int64(c.random.IntN(3)) - 1}
		if c.random.IntN(3) == 0 {
			in.Deadline = in.Runnable + 1 + int64(c.random.IntN(2))
		}
		c.made = append(c.made, in.ID)
		return in
	case draw < 10:
		return linearIn{Verb: "claim", Max: 1 + c.random.IntN(3), Now: now}
	case draw < 12:
		in := linearIn{Verb: "claim", Now: now}
		for range 1 + c.random.IntN(3) { // ids that others may have claimed, or have not made
			in.IDs = append(in.IDs, job.ID(fmt.Sprintf("c%02d-%02d", c.random.IntN(linearProcesses*linearClients), c.random.IntN(n+1))))
		}
		return in
	case draw < 15 && len(c.held) > 0:
		h := c.take()
		return linearIn{Verb: "complete", ID: h.ID, Fence: h.Fence, Now: now}
	case draw < 16 && len(c.held) > 0:
		h := c.take()
		return linearIn{Verb: "release", ID: h.ID, Fence: h.Fence, Now: now, Runnable: now}
	case draw < 17:
		return linearIn{Verb: "reclaim", Now: now}
	case draw < 18 && len(c.made) > 0:
		return linearIn{Verb: "cancel", ID: c.made[c.random.IntN(len(c.made))], Now: now}
	default:
		return linearIn{Verb: "get", ID: job.ID(fmt.Sprintf("c%02d-%02d", c.random.IntN(linearProcesses*linearClients), 0))}
	}
}

// take picks something that the client holds, and sometimes does not drop it, so
// that it is completed twice.
func (c *linearClient) take() linearClaim {
	n := c.random.IntN(len(c.held))
	h := c.held[n]
	if c.random.IntN(4) > 0 {
		c.held = slices.Delete(c.held, n, n+1)
	}
	return h
}

func tick(n int64) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

// do does it as soon as the process is the one that writes.
func (c *linearClient) do(in linearIn) linearOut {
	for {
		store := c.process.store()
		out, err := c.try(store, in)
		switch {
		case errors.Is(err, queue.ErrDeposed):
			if err = c.process.takeOver(store); err == nil {
				continue
			}
			out.Error = err.Error()
		case errors.Is(err, queue.ErrFenced):
			out.Error = "fenced"
		case errors.Is(err, queue.ErrIllegalTransition):
			out.Error = "illegal"
		case errors.Is(err, queue.ErrNotFound):
			out.Error = "unknown"
		case err != nil:
			out.Error = err.Error()
		}
		return out
	}
}

func (c *linearClient) try(store queue.Store, in linearIn) (out linearOut, err error) {
	ctx := context.Background()
	switch in.Verb {
	case "enqueue":
		e := queue.Entry{ID: in.ID, CreatedAt: tick(0), RunnableAt: tick(in.Runnable), Spec: job.Spec{Name: job.Name(in.ID), Priority: in.Priority}}
		if in.Deadline > 0 {
			e.Deadline = new(tick(in.Deadline))
		}
		err = store.Enqueue(ctx, queue.Batch{ID: "all"}, []queue.Entry{e})
	case "claim":
		var claims queue.Claims
		claims, err = store.Claim(ctx, queue.ClaimSpec{Holder: fmt.Sprint(c.id), Max: in.Max, IDs: in.IDs, Now: tick(in.Now), Lease: linearLease * time.Second})
		for _, e := range claims.Entries {
			out.Claimed = append(out.Claimed, linearClaim{e.ID, e.Fence})
		}
		c.held = append(c.held, out.Claimed...)
	case "complete":
		err = store.Apply(ctx, queue.Finish{ID: in.ID, Fence: in.Fence, Now: tick(in.Now), Exit: job.ExitSucceeded})
	case "release":
		err = store.Apply(ctx, queue.Release{ID: in.ID, Fence: in.Fence, Now: tick(in.Now), RunnableAt: tick(in.Runnable)})
	case "reclaim":
		err = store.Apply(ctx, queue.Reclaim{Now: tick(in.Now), Lapsed: true, Message: "gone"})
	case "cancel":
		err = store.Apply(ctx, queue.Cancel{ID: in.ID, Now: tick(in.Now)})
	case "get":
		var e queue.Entry
		e, err = store.Get(ctx, in.ID)
		out.State = e.State
	}
	return out, err
}
