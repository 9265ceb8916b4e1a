package queuetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// crashChildVariable makes the test binary a writer on the named store.
const crashChildVariable = "AGENTSCHED_TEST_CRASH_STORE"

var crashUsage = job.Usage{InputTokens: 7}

const crashTenant job.Tenant = "t"

// Opener opens the store at a place, which is whatever it takes: a path, an address.
type Opener func(ctx context.Context, place string) (queue.Store, error)

// Child is called by the TestMain of a package that tests Crash or Linearizable: a
// process that these have started does its work, and is has its exit code.
func Child(open Opener) (code int, is bool) {
	if place := os.Getenv(crashChildVariable); place != "" {
		return crashChild(open, place), true
	}
	if arg := os.Getenv(linearChildVariable); arg != "" {
		return linearChild(open, arg), true
	}
	return 0, false
}

// Crash kills a process that writes as fast as it can, at random moments, rounds
// times, and looks at what it left: everything that it said was done is there, and
// everything else is whole or absent. place makes a place for an empty store.
func Crash(t *testing.T, seed uint64, rounds int, place func() string, open Opener) {
	random := rand.New(rand.NewPCG(seed, 0))
	var path string
	verbs := map[string]int{}
	for round := range rounds {
		if round%10 == 0 { // or the check of what is there would take ever longer
			path = place()
		}
		lines := 1 + random.IntN(200)
		acknowledged := runUntilKilled(t, path, lines)
		if len(acknowledged) < lines {
			t.Fatalf("round %d: the child ended by itself after %d lines:\n%s", round, len(acknowledged), strings.Join(acknowledged, "\n"))
		}
		for _, line := range acknowledged {
			verb, _, _ := strings.Cut(line, " ")
			verbs[verb]++
		}
		checkSurvivors(t, open, path, acknowledged)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	for _, verb := range []string{"enqueued", "claimed", "begun", "finished", "asked", "decided"} {
		if verbs[verb] == 0 {
			t.Errorf("nothing was %s: %v", verb, verbs)
		}
	}
	t.Log(verbs)
}

// runUntilKilled starts a writer, kills it once it has acknowledged so many
// writes, and returns all that it acknowledged until it was dead.
func runUntilKilled(t *testing.T, path string, lines int) (acknowledged []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashChildVariable+"="+path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	for {
		line, err := out.ReadString('\n')
		if err != nil { // the rest of a line is no acknowledgement
			break
		}
		acknowledged = append(acknowledged, strings.TrimSuffix(line, "\n"))
		if len(acknowledged) == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the child was not killed")
	}
	return acknowledged
}

func checkSurvivors(t *testing.T, open Opener, path string, acknowledged []string) {
	t.Helper()
	s, err := open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, _, err := s.List(t.Context(), queue.Filter{Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	checkBalance(t, s, all)
	byID, lines := map[job.ID]queue.Entry{}, map[string]int{}
	for _, e := range all {
		byID[e.ID] = e
		lines[strings.TrimRight(string(e.Spec.Name), "abcd")]++
		checkWhole(t, s, e)
	}
	for _, e := range all {
		checkLine(t, byID, e)
		if need, ok := byID[job.ID(e.Spec.Agent)]; ok { // d is let go with the end of a
			if want := need.State != job.Completed; (e.Held == job.HeldForNeeds) != want || want != (e.Resolved == nil) {
				t.Errorf("job %s is %s, held for %q, resolved %v, and the job %s that it needs is %s", e.ID, e.State, e.Held, e.Resolved != nil, need.ID, need.State)
			}
		}
	}
	for name, n := range lines {
		if n != 4 {
			t.Errorf("%d of the four jobs %s are stored", n, name)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for _, line := range acknowledged {
		var verb, id string
		var fence job.Fence
		fmt.Sscan(line, &verb, &id, &fence)
		e, there := byID[job.ID(id)]
		switch {
		case !there:
			t.Errorf("acknowledged %q is lost", line)
		case verb == "claimed" && e.Fence < fence,
			verb == "begun" && e.Attempts == 0,
			verb == "asked" && e.Approval == nil,
			verb == "decided" && (e.State != job.Completed || !e.Approval.Approved),
			verb == "finished" && e.State != job.Completed:
			t.Errorf("acknowledged %q, stored %s with fence %d", line, e.State, e.Fence)
		}
	}
}

// checkBalance checks that each claim has taken a credit, and that those whose attempts do
// not count were given it back.
func checkBalance(t *testing.T, s queue.Store, all []queue.Entry) {
	t.Helper()
	var want int64
	for _, e := range all {
		want += int64(e.Counted)
		attempts, err := s.Attempts(t.Context(), e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if e.State == job.Dispatched && (len(attempts) == 0 || attempts[len(attempts)-1].Ended != nil) {
			want++
		}
	}
	list, err := s.Balances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got int64
	for _, b := range list { // none if the child was killed before it had one
		got += b.Taken
	}
	if got != want {
		t.Errorf("%d credits were taken, and %d attempts count or are under way", got, want)
	}
}

// checkLine checks that an entry waits if and only if the one before it in the
// line of its key has not ended, and has its result if it was to have it.
func checkLine(t *testing.T, byID map[job.ID]queue.Entry, e queue.Entry) {
	t.Helper()
	if e.WaitsFor != "" && (e.State != job.Queued || byID[e.WaitsFor].State.Terminal()) {
		t.Errorf("job %s is %s and waits for job %s, which is %s", e.ID, e.State, e.WaitsFor, byID[e.WaitsFor].State)
	}
	if leader, ok := byID[e.CoalescedWith]; ok && (leader.State == job.Completed) != (e.State == job.Completed) {
		t.Errorf("job %s is %s and coalesced with job %s, which is %s", e.ID, e.State, leader.ID, leader.State)
	}
	if e.Spec.OnDuplicate == job.Coalesce != (e.CoalescedWith != "") {
		t.Errorf("job %s with policy %q is coalesced with %q", e.ID, e.Spec.OnDuplicate, e.CoalescedWith)
	}
}

// checkWhole checks that each of the child's transactions about e is there as
// a whole or not at all.
func checkWhole(t *testing.T, s queue.Store, e queue.Entry) {
	t.Helper()
	if e.CoalescedWith != "" {
		return // nothing of it is its own
	}
	attempts, err := s.Attempts(t.Context(), e.ID)
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(t.Context(), e.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	records, err := s.Records(t.Context(), queue.JobSpace(e.ID, "steps"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(attempts) != e.Attempts {
		t.Errorf("job %s: %d attempts, the entry counts %d", e.ID, len(attempts), e.Attempts)
	}
	ends := 0
	for i, a := range attempts {
		completed := a.State == job.RunCompleted
		if completed {
			ends++
		}
		asked := a.State == job.WaitingApproval && e.Held == job.HeldForApproval
		if last := i == len(attempts)-1; completed && !last || (completed || asked) != (a.Ended != nil && !a.Lost) || a.State == job.Pending {
			t.Errorf("job %s: attempt %d is %s, ended %v, lost %v", e.ID, a.Number, a.State, a.Ended, a.Lost)
		}
	}
	finished := e.State == job.Completed
	worked := finished || e.Held == job.HeldForApproval
	if finished != (ends == 1) || worked != (e.Spent == crashUsage) || worked != (len(events) == 1) || worked != (len(records) == 1) || finished == (e.ExitKind == "") {
		t.Errorf("job %s is %s %q, held for %q, with %d ends, %d events, %d records, spent %+v", e.ID, e.State, e.ExitKind, e.Held, ends, len(events), len(records), e.Spent)
	}
	answers, err := s.Records(t.Context(), queue.JobSpace(e.ID, "answers"), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if decided := e.Approval != nil && e.Approval.DecidedAt != nil; decided != (len(answers) == 1) || decided != (finished && e.Approval != nil) {
		t.Errorf("job %s is %s, its question is %+v, and %d answers are recorded", e.ID, e.State, e.Approval, len(answers))
	}
}

// crashChild writes until it is killed. Each line that it prints acknowledges
// a write that the store has answered.
func crashChild(open Opener, path string) int {
	ctx := context.Background()
	s, err := open(ctx, path)
	if err == nil {
		err = s.Apply(ctx, queue.Reclaim{Now: time.Now(), Holders: []string{"child"}, Message: "killed"})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := s.Apply(ctx, queue.TopUp{Tenant: crashTenant, Credits: 1_000_000, Now: time.Now()}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := &crasher{ctx: ctx, store: s, batch: queue.Batch{ID: job.NewBatchID()}}
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Go(func() {
			work := []func() error{c.submit, c.work, c.decide}[n%3]
			for work() == nil {
			}
		})
	}
	wg.Wait()
	return 1
}

type crasher struct {
	ctx   context.Context
	store queue.Store
	batch queue.Batch
	print sync.Mutex
}

// say prints one line with one write, or the process ends.
func (c *crasher) say(format string, args ...any) error {
	c.print.Lock()
	defer c.print.Unlock()
	_, err := fmt.Printf(format+"\n", args...)
	return err
}

func (c *crasher) submit() error {
	key := job.NewID()
	line := []queue.Entry{ // a runs, b gets its result, c runs after it and is asked about, d needs a
		{ID: job.NewID(), Spec: job.Spec{Name: job.Name(key + "-a"), Key: string(key), OnDuplicate: job.Serialize}},
		{ID: job.NewID(), Spec: job.Spec{Name: job.Name(key + "-b"), Key: string(key), OnDuplicate: job.Coalesce}},
		{ID: job.NewID(), Spec: job.Spec{Name: job.Name(key + "-c"), Key: string(key), OnDuplicate: job.Serialize}},
		{ID: job.NewID(), Held: job.HeldForNeeds, Spec: job.Spec{Name: job.Name(key + "-d"), Flow: job.Flow{Joined: true, Needs: []job.Name{job.Name(key + "-a")}}}},
	}
	for i := range line {
		line[i].Spec.Tenant = crashTenant
	}
	// What comes later goes first, or it would not come.
	line[2].Spec.Priority, line[3].Spec.Priority = 1, 1
	// Who of them knows whom: a what it lets go, and d what it needs.
	line[0].Spec.Instructions, line[3].Spec.Agent = string(line[3].ID), job.AgentID(line[0].ID)
	if err := c.store.Enqueue(c.ctx, c.batch, line); err != nil {
		return c.report(err)
	}
	return c.say("enqueued %s\nenqueued %s\nenqueued %s\nenqueued %s", line[0].ID, line[1].ID, line[2].ID, line[3].ID)
}

func (c *crasher) work() error {
	claims, err := c.store.Claim(c.ctx, queue.ClaimSpec{Holder: "child", Max: 1, Now: time.Now(), Lease: time.Hour})
	if err != nil {
		return c.report(err)
	}
	for _, e := range claims.Entries {
		n := e.Attempts + 1
		if err := c.say("claimed %s %d", e.ID, e.Fence); err != nil {
			return err
		}
		err := c.store.Apply(c.ctx,
			queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Number: n, State: job.Pending, Started: time.Now()}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: n, To: job.Running})
		if err != nil {
			return c.report(err)
		}
		if err := c.say("begun %s", e.ID); err != nil {
			return err
		}
		outcome := job.Outcome{State: job.RunCompleted, Usage: crashUsage}
		ops := []queue.Op{
			queue.Append{Events: []job.Event{{Job: e.ID, Attempt: n, Seq: 1, Kind: job.EventText}}},
			queue.Write{Record: queue.Record{Space: queue.JobSpace(e.ID, "steps"), Key: "1", Value: json.RawMessage(`"result"`), At: time.Now()}, Once: true},
		}
		ended := "finished"
		if strings.HasSuffix(string(e.Spec.Name), "-c") {
			ended = "asked"
			ops = append(ops, queue.Await{ID: e.ID, Fence: e.Fence, Attempt: n, Now: time.Now(), Outcome: outcome, Approval: queue.Approval{Why: "supervised"}})
		} else {
			ops = append(ops, queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: n, Now: time.Now(), Exit: job.ExitSucceeded, Outcome: outcome})
		}
		if needed := e.Spec.Instructions; needed != "" {
			ops = append(ops, queue.Ready{ID: job.ID(needed), Resolved: &job.Resolved{Hash: "h"}, Now: time.Now()})
		}
		if err := c.store.Apply(c.ctx, ops...); err != nil {
			return c.report(err)
		}
		if err := c.say("%s %s", ended, e.ID); err != nil {
			return err
		}
	}
	return nil
}

// decide says yes to what is asked, also by children before.
func (c *crasher) decide() error {
	list, _, err := c.store.List(c.ctx, queue.Filter{Held: []job.Hold{job.HeldForApproval}, Limit: 10})
	if err != nil {
		return c.report(err)
	}
	for _, e := range list {
		err := c.store.Apply(c.ctx,
			queue.Decide{ID: e.ID, Attempt: e.Approval.Attempt, Approved: true, By: "child", Now: time.Now()},
			queue.Write{Record: queue.Record{Space: queue.JobSpace(e.ID, "answers"), Key: "1", Value: json.RawMessage(`true`), At: time.Now()}, Once: true})
		if errors.Is(err, queue.ErrIllegalTransition) {
			continue // another did
		}
		if err != nil {
			return c.report(err)
		}
		if err := c.say("decided %s", e.ID); err != nil {
			return err
		}
	}
	return nil
}

func (c *crasher) report(err error) error {
	fmt.Fprintln(os.Stderr, err)
	return err
}
