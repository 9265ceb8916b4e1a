package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sqlite"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// letters is a store with dead letters in it.
type letters struct {
	*sqlite.Store
	t *testing.T
}

func openLetters(t *testing.T) letters {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "queue.db"), sqlite.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return letters{store, t}
}

func spec(name job.Name, change func(*job.Spec)) job.Spec {
	s := job.Spec{Name: name, Tenant: "web", Type: job.WorkerTask, Worker: "codex", Instructions: "do " + string(name), Workspace: job.Workspace{Isolation: job.NoWorkspace}}
	if change != nil {
		change(&s)
	}
	return s
}

// fail submits a job at the time and lets it fail for good a minute later.
func (l letters) fail(s job.Spec, class job.ErrorClass, at time.Time) job.ID {
	l.t.Helper()
	b, entries := scheduler.NewBatch("test", "", []job.Spec{s}, job.Workflow{}, at)
	if err := l.Enqueue(l.t.Context(), b, entries); err != nil {
		l.t.Fatal(err)
	}
	l.failNext(class, at)
	return entries[0].ID
}

// failNext lets what can be claimed at the time fail for good a minute later.
func (l letters) failNext(class job.ErrorClass, at time.Time) {
	l.t.Helper()
	claims, err := l.Claim(l.t.Context(), queue.ClaimSpec{Holder: "test", Max: 100, Now: at, Lease: time.Minute})
	if err != nil || len(claims.Entries) == 0 {
		l.t.Fatalf("claimed %+v, %v", claims, err)
	}
	end := at.Add(time.Minute)
	for _, e := range claims.Entries {
		o := job.Outcome{State: job.RunFailed, Class: class, Message: "it broke", StartedAt: at, EndedAt: end}
		err := l.Apply(l.t.Context(),
			queue.Begin{ID: e.ID, Fence: e.Fence, Attempt: job.Attempt{Job: e.ID, Number: e.Attempts + 1, Fence: e.Fence, Choice: e.Spec.Choices()[0], State: job.Pending, Started: at}},
			queue.Move{ID: e.ID, Fence: e.Fence, Attempt: e.Attempts + 1, To: job.Running, Session: "session-" + string(e.Spec.Name)},
			queue.Finish{ID: e.ID, Fence: e.Fence, Attempt: e.Attempts + 1, Outcome: o, Now: end, Exit: job.ExitFailed, DeadLetter: string(class) + ": it broke; for good"})
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l letters) get(id job.ID) queue.Entry {
	l.t.Helper()
	e, err := l.Get(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return e
}

func (l letters) requeue(at time.Time, list ...scheduler.Again) []queue.Entry {
	l.t.Helper()
	entries, err := scheduler.Requeue(l.t.Context(), l.Enqueue, list, at)
	if err != nil || len(entries) != len(list) {
		l.t.Fatalf("requeued %+v, %v", entries, err)
	}
	return entries
}

func TestDeadLetters(t *testing.T) {
	l := openLetters(t)
	a := l.fail(spec("login", nil), job.Server, noon)
	b := l.fail(spec("search", func(s *job.Spec) { s.Tenant, s.Worker = "shop", "claude" }), job.Auth, noon.Add(time.Hour))
	c := l.fail(spec("pay", nil), job.Network, noon.Add(2*time.Hour))
	dropped := l.fail(spec("gone", nil), job.Server, noon)
	if err := l.Apply(t.Context(), queue.Drop{ID: dropped, Now: noon}); err != nil {
		t.Fatal(err)
	}
	again := l.fail(spec("again", nil), job.Server, noon)
	l.requeue(noon.Add(3*time.Hour), scheduler.Again{Letter: l.get(again)})
	for _, tt := range []struct {
		name   string
		filter scheduler.LetterFilter
		want   []job.ID
		total  int
	}{
		{"all", scheduler.LetterFilter{}, []job.ID{c, b, a}, 3},
		{"limit", scheduler.LetterFilter{Limit: 1}, []job.ID{c}, 3},
		{"class", scheduler.LetterFilter{Classes: []job.ErrorClass{job.Server}}, []job.ID{a}, 1},
		{"classes", scheduler.LetterFilter{Classes: []job.ErrorClass{job.Server, job.Network}}, []job.ID{c, a}, 2},
		{"tenant", scheduler.LetterFilter{Tenant: "shop"}, []job.ID{b}, 1},
		{"worker", scheduler.LetterFilter{Worker: "claude"}, []job.ID{b}, 1},
		{"older", scheduler.LetterFilter{Older: noon.Add(61 * time.Minute)}, []job.ID{b, a}, 2},
		{"newer", scheduler.LetterFilter{Newer: noon.Add(61 * time.Minute)}, []job.ID{c}, 1},
		{"name", scheduler.LetterFilter{Grep: regexp.MustCompile("^log")}, []job.ID{a}, 1},
		{"reason", scheduler.LetterFilter{Grep: regexp.MustCompile("AUTH: it broke")}, []job.ID{b}, 1},
		{"instructions", scheduler.LetterFilter{Grep: regexp.MustCompile("do pay")}, []job.ID{c}, 1},
		{"nothing", scheduler.LetterFilter{Tenant: "nobody"}, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, total, err := scheduler.DeadLetters(t.Context(), l, tt.filter)
			var got []job.ID
			for _, e := range list {
				got = append(got, e.ID)
			}
			if err != nil || !slices.Equal(got, tt.want) || total != tt.total {
				t.Errorf("got %v of %d, %v, want %v of %d", got, total, err, tt.want, tt.total)
			}
		})
	}
}

// TestRequeue: the new job begins anew, both know of each other, and nobody does
// a letter again twice.
func TestRequeue(t *testing.T) {
	l := openLetters(t)
	past, ahead := noon.Add(time.Minute), noon.Add(48*time.Hour)
	id := l.fail(spec("login", func(s *job.Spec) {
		s.Deadline, s.RunnableAt = &past, &noon
		s.Workspace = job.Workspace{Isolation: job.Direct, Path: "/srv/shop"}
	}), job.Server, noon)
	letter := l.get(id)
	at := noon.Add(time.Hour)
	e := l.get(l.requeue(at, scheduler.Again{Letter: letter})[0].ID)
	if e.State != job.Queued || e.RequeuedFrom != id || e.Attempts != 0 || !e.RunnableAt.Equal(at) || e.Deadline != nil ||
		e.Spec.Deadline != nil || e.Spec.RunnableAt != nil || e.Spec.Trigger != job.ByResume || e.Spec.Name != "login" || e.Session != "session-login" {
		t.Errorf("the new job is %+v", e)
	}
	if was := l.get(id); was.RequeuedAs != e.ID || was.State != job.Completed || was.DeadLetter == "" || was.Spec.Trigger != "" {
		t.Errorf("the letter is %+v", was)
	}
	_, err := scheduler.Requeue(t.Context(), l.Enqueue, []scheduler.Again{{Letter: letter}}, at)
	if !errors.Is(err, queue.ErrIllegalTransition) || !strings.Contains(err.Error(), string(id)) {
		t.Errorf("once more: %v", err)
	}
	batches, err := l.Batches(t.Context(), "")
	if err != nil || batches[0].ID != e.Batch || batches[0].Private || batches[0].ClosedAt != nil {
		t.Errorf("batches %+v, %v", batches, err)
	}

	l.failNext(job.Server, at)
	other := spec("login-2", func(s *job.Spec) { s.Deadline, s.RunnableAt = &ahead, &ahead })
	letter = l.get(e.ID)
	letter.Spec.Flow.Oversight = &job.Oversight{Mode: job.Supervised}
	third := l.get(l.requeue(at.Add(time.Hour), scheduler.Again{Letter: letter, Spec: &other})[0].ID)
	if o := third.Spec.Flow.Oversight; o == nil || o.Mode != job.Supervised {
		t.Errorf("the changed job has lost its oversight: %+v", third.Spec.Flow)
	}
	if third.Spec.Name != "login-2" || third.Deadline == nil || !third.RunnableAt.Equal(ahead) || third.Session != "" || third.Feedback != "" {
		t.Errorf("the changed job is %+v", third)
	}
	chain, err := scheduler.Chain(t.Context(), l, &third)
	if err != nil || len(chain) != 2 || chain[0].ID != id || chain[1].ID != e.ID {
		t.Errorf("chain %+v, %v", chain, err)
	}
}

// A session is of use only where the folder is the same.
func TestRequeueForgetsSessions(t *testing.T) {
	l := openLetters(t)
	direct := job.Workspace{Isolation: job.Direct, Path: "/srv/shop"}
	for i, tt := range []struct {
		workspace job.Workspace
		fresh     bool
		want      string
	}{
		{direct, false, "session-j0"},
		{direct, true, ""},
		{job.Workspace{Isolation: job.Worktree, Path: "/srv/shop"}, false, ""},
		{job.Workspace{Isolation: job.NoWorkspace}, false, ""},
	} {
		id := l.fail(spec(job.Name(fmt.Sprintf("j%d", i)), func(s *job.Spec) { s.Workspace = tt.workspace }), job.Crash, noon)
		e := l.requeue(noon.Add(time.Hour), scheduler.Again{Letter: l.get(id), Fresh: tt.fresh})[0]
		if e.Session != tt.want || (e.SessionWorker != "") != (tt.want != "") {
			t.Errorf("%+v: session %q of %q, want %q", tt, e.Session, e.SessionWorker, tt.want)
		}
		l.failNext(job.Crash, noon.Add(time.Hour))
	}
}

// What is refused keeps the others from nothing, and jobs of one name are
// requeued together.
func TestRequeueOthers(t *testing.T) {
	l := openLetters(t)
	var list []scheduler.Again
	for i := range 9 {
		id := l.fail(spec("same", nil), job.Server, noon.Add(time.Duration(i)*time.Hour))
		if i == 4 {
			l.requeue(noon.Add(1000*time.Hour), scheduler.Again{Letter: l.get(id)}) // nobody claims it here
		}
		list = append(list, scheduler.Again{Letter: l.get(id)})
	}
	key := func(s *job.Spec) { s.Key, s.OnDuplicate = "deploy", job.Reject }
	rejected := l.fail(spec("deploy", key), job.Server, noon.Add(25*time.Hour))
	b, entries := scheduler.NewBatch("test", "", []job.Spec{spec("deploy", key)}, job.Workflow{}, noon)
	if err := l.Enqueue(t.Context(), b, entries); err != nil {
		t.Fatal(err)
	}
	list = append(list, scheduler.Again{Letter: l.get(rejected)})
	done, err := scheduler.Requeue(t.Context(), l.Enqueue, list, noon.Add(48*time.Hour))
	if len(done) != 8 || err == nil {
		t.Fatalf("requeued %d, %v", len(done), err)
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 2 || !strings.Contains(err.Error(), string(list[4].Letter.ID)) || !strings.Contains(err.Error(), string(rejected)) {
		t.Errorf("got %v, want a line for each of the two that were refused", err)
	}
	if _, total, err := scheduler.DeadLetters(t.Context(), l, scheduler.LetterFilter{}); err != nil || total != 1 {
		t.Errorf("%d letters are left, %v, want the rejected one", total, err)
	}
}

func TestRequeueTellsThatTheStoreFails(t *testing.T) {
	broken := errors.New("disk full")
	n := 0
	enqueue := func(context.Context, queue.Batch, []queue.Entry) error { n++; return broken }
	list := []scheduler.Again{{Letter: queue.Entry{ID: "a", Spec: spec("a", nil)}}, {Letter: queue.Entry{ID: "b", Spec: spec("b", nil)}}}
	if done, err := scheduler.Requeue(t.Context(), enqueue, list, noon); len(done) != 0 || !errors.Is(err, broken) || n != 1 || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("requeued %v, %v in %d tries", done, err, n)
	}
}

// TestRedrive counts over the whole chain, and leaves what is too late to a person.
func TestRedrive(t *testing.T) {
	l := openLetters(t)
	rules := []policy.RedriveRule{{Classes: []job.ErrorClass{job.Server}, After: 30 * time.Minute, Max: 2, Rate: policy.RedriveRate{Count: 1, Per: time.Hour}}}
	late := noon.Add(time.Minute)
	l.fail(spec("late", func(s *job.Spec) { s.Deadline = &late }), job.Server, noon)
	l.fail(spec("auth", nil), job.Auth, noon)
	child := queue.Entry{ID: "child", Spec: spec("child", nil), State: job.Queued, CreatedAt: noon, RunnableAt: noon}
	child.Spec.Lead = job.Lead{Job: "lead", Depth: 1}
	if err := l.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID(), CreatedAt: noon}, []queue.Entry{child}); err != nil {
		t.Fatal(err)
	}
	l.failNext(job.Server, noon)
	told := l.fail(spec("flaky", nil), job.Server, noon)
	for i := range 3 { // what people have said since is no requeue
		f := l.get(told)
		f = queue.Entry{ID: job.ID(fmt.Sprintf("told-%d", i)), Spec: f.Spec, State: job.Queued, CreatedAt: noon, RunnableAt: noon, Continues: f.ID, Folder: f.WorksIn()}
		if err := l.Enqueue(t.Context(), queue.Batch{ID: job.NewBatchID(), CreatedAt: noon}, []queue.Entry{f}); err != nil {
			t.Fatal(err)
		}
		l.failNext(job.Server, noon)
		told = f.ID
	}
	var lately policy.Redrives
	at := noon
	var names []string
	for range 8 { // every half an hour
		entries, next, err := scheduler.Redrive(t.Context(), l, l.Enqueue, rules, lately, at)
		if err != nil {
			t.Fatal(err)
		}
		lately = next
		for _, e := range entries {
			names = append(names, fmt.Sprintf("%s at %s", e.Spec.Name, at.Sub(noon)))
		}
		if len(entries) > 0 {
			l.failNext(job.Server, at)
		}
		at = at.Add(30 * time.Minute)
	}
	if want := []string{"flaky at 1h0m0s", "flaky at 2h0m0s"}; !slices.Equal(names, want) {
		t.Errorf("redriven %q, want %q", names, want)
	}
	if entries, next, err := scheduler.Redrive(t.Context(), l, l.Enqueue, nil, lately, at); entries != nil || next != nil || err != nil {
		t.Errorf("without rules: %v, %v, %v", entries, next, err)
	}
}

func TestWaitsForSomebody(t *testing.T) {
	then := noon
	for _, tt := range []struct {
		entry queue.Entry
		want  string
	}{
		{queue.Entry{State: job.Completed, ExitKind: job.ExitFailed}, ""},
		{queue.Entry{State: job.Completed, ExitKind: job.ExitSucceeded}, "is completed, not a dead letter"},
		{queue.Entry{State: job.Completed, ExitKind: job.ExitCancelled}, "is cancelled, not a dead letter"},
		{queue.Entry{State: job.Queued}, "is pending, not a dead letter"},
		{queue.Entry{State: job.Expired}, "expired before it began"},
		{queue.Entry{State: job.Completed, ExitKind: job.ExitFailed, RequeuedAs: "n"}, "was requeued as n already"},
		{queue.Entry{State: job.Completed, ExitKind: job.ExitFailed, DroppedAt: &then}, "was dropped on"},
	} {
		tt.entry.ID, tt.entry.Spec.Name = "i", "fix"
		err := scheduler.WaitsForSomebody(&tt.entry)
		if err == nil && tt.want != "" || err != nil && (!strings.Contains(err.Error(), "job i (fix) "+tt.want) || tt.want == "" || !errors.Is(err, queue.ErrIllegalTransition)) {
			t.Errorf("%+v: got %v, want %q", tt.entry, err, tt.want)
		}
	}
}
