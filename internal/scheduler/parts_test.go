package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

func entry(kind job.WorkerKind, isolation job.Isolation, path string) *queue.Entry {
	return &queue.Entry{Spec: job.Spec{Worker: kind, Workspace: job.Workspace{Isolation: isolation, Path: path}}}
}

func TestAdmission(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name        string
		first, next *queue.Entry
		admitted    bool
	}{
		{"kinds do not share slots", entry("codex", job.NoWorkspace, ""), entry("shell", job.NoWorkspace, ""), true},
		{"the one slot of a kind", entry("codex", job.NoWorkspace, ""), entry("codex", job.NoWorkspace, ""), false},
		{"worktrees of one repository", entry("shell", job.Worktree, dir), entry("shell", job.Worktree, dir), true},
		{"one folder", entry("shell", job.Direct, dir), entry("shell", job.Direct, dir), false},
		{"one folder by another name", entry("shell", job.Direct, dir), entry("shell", job.Direct, link), false},
		{"folder and subfolder", entry("shell", job.Direct, dir), entry("shell", job.Direct, filepath.Join(dir, "sub")), false},
		{"subfolder and folder", entry("shell", job.Direct, filepath.Join(dir, "sub")), entry("shell", job.Direct, dir), false},
		{"neighbours with a common beginning", entry("shell", job.Direct, dir), entry("shell", job.Direct, dir+"2"), true},
		{"everything is below the root", entry("shell", job.Direct, dir), entry("shell", job.Direct, "/"), false},
		{"direct and worktree", entry("shell", job.Direct, dir), entry("shell", job.Worktree, dir), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Config{
				Supervise: func(supervisor.Handler) Cores { return nil },
				Tuning:    Tuning{Settings: ipc.Configure{MaxConcurrent: 9, Workers: map[job.WorkerKind]job.WorkerSettings{"codex": {MaxConcurrent: 1}, "claude": {}}}},
			})
			for _, e := range []*queue.Entry{tt.first, tt.next} {
				if _, err := s.folders.Get(e.Spec.Workspace.Path); err != nil {
					t.Fatal(err)
				}
			}
			read := schedule.HeadsRead{Folders: map[string]string{}}
			lane := queue.LaneHeads{Lane: job.Lane{Tenant: tt.first.Spec.Tenant}}
			for i, e := range []*queue.Entry{tt.first, tt.next} {
				h := queue.HeadOf(e)
				h.ID = job.ID(fmt.Sprint(i))
				lane.Heads = append(lane.Heads, h)
				read.Folders[h.Workspace.Path], _ = s.folders.Peek(h.Workspace.Path)
			}
			read.Version, read.All, read.Lanes = 1, true, []queue.LaneHeads{lane}
			s.loop.step(schedule.Cores{{ID: 1, Index: 1, Takes: true}})
			ready := s.loop.step(read)
			if len(ready.Claims) != 1 || ready.Claims[0].IDs[0] != "0" {
				t.Fatalf("claims %v, want the first", ready.Claims)
			}
			if got := len(ready.Claims[0].IDs) == 2; got != tt.admitted {
				t.Errorf("the next is admitted: %v, want %v", got, tt.admitted)
			}
		})
	}
}

// TestLooksAt drops what is known of workflows that were looked at the longest ago.
func TestLooksAt(t *testing.T) {
	f := (&Followers{}).init()
	f.most = 5
	for _, b := range []job.BatchID{"a", "b", "c", "a", "d"} {
		if f.followed[b] == nil {
			f.followed[b] = &followed{jobs: make([]*queue.Entry, 2)}
		}
		f.looksAt(b)
	}
	if len(f.followed) != 2 || f.followed["a"] == nil || f.followed["d"] == nil {
		t.Errorf("known are %v, want a and d", f.followed)
	}
	f.most = 0
	if f.looksAt("a"); len(f.followed) != 1 || f.followed["a"] == nil {
		t.Errorf("known are %v, want the one that is looked at", f.followed)
	}
}

// TestSlowListener misses updates, is told how many, and hinders nobody.
func TestSlowListener(t *testing.T) {
	var h Feed
	_, _, slow, stopSlow := h.SubscribeFrom("", 4)
	_, _, fast, stopFast := h.SubscribeFrom("", 1000)
	for i := range 100 {
		h.publish(api.Update{Kind: api.UpdateEvent, Attempt: i})
	}
	seen, missed := 0, 0
	read := func() {
		for len(slow) > 0 {
			if u := <-slow; u.Kind == api.UpdateGap {
				missed += u.Missed
			} else {
				seen++
			}
		}
	}
	read()
	h.publish(api.Update{Kind: api.UpdateEvent, Attempt: 100})
	read()
	if seen+missed != 101 || missed == 0 {
		t.Errorf("seen %d, missed %d, want 101 together", seen, missed)
	}
	stopSlow()
	stopSlow()
	stopFast()
	var order []int
	for u := range fast {
		order = append(order, u.Attempt)
	}
	if len(order) != 101 || !slices.IsSorted(order) {
		t.Errorf("the fast listener got %d updates in the order %v", len(order), order)
	}
	h.publish(api.Update{}) // nobody listens
}

// TestComingBack: a listener that says what it has heard gets what came since, or
// a gap if that is no longer known.
func TestComingBack(t *testing.T) {
	var h Feed
	if _, past, _, stop := h.SubscribeFrom("another-7", 4); len(past) != 1 || past[0].Kind != api.UpdateGap {
		t.Errorf("of another life: %+v", past)
	} else {
		stop()
	}
	var ids []string
	_, _, all, stop := h.SubscribeFrom("", 2*maxPast)
	for i := range maxPast + 10 {
		h.publish(api.Update{Kind: api.UpdateJob, Attempt: i})
		ids = append(ids, (<-all).ID)
	}
	stop()
	for i, id := range ids {
		if i > 20 && i < len(ids)-20 && i%50 != 0 {
			continue // each look copies all that follows
		}
		_, past, _, stop := h.SubscribeFrom(id, 4)
		stop()
		switch {
		case i < 9:
			if len(past) != 1 || past[0].Kind != api.UpdateGap || past[0].ID != ids[len(ids)-1] {
				t.Fatalf("from %s, which is forgotten: %d updates", id, len(past))
			}
		case len(past) != len(ids)-1-i || len(past) > 0 && (past[0].Attempt != i+1 || past[len(past)-1].ID != ids[len(ids)-1]):
			t.Fatalf("from %s: %d updates, want %d", id, len(past), len(ids)-1-i)
		}
	}
	for _, id := range []string{"", h.boot, h.boot + "-x", h.boot + "-999999999", "x-1"} {
		_, past, _, stop := h.SubscribeFrom(id, 4)
		stop()
		if (id == "") != (len(past) == 0) {
			t.Errorf("from %q: %d updates", id, len(past))
		}
	}
}

// TestComingBackWithoutAWord: a listener that has heard nothing yet misses nothing either.
func TestComingBackWithoutAWord(t *testing.T) {
	var h Feed
	for _, text := range []string{"first", "second"} {
		at, _, _, stop := h.SubscribeFrom("", 4)
		stop()
		h.publish(api.Update{Text: text})
		_, past, _, stop := h.SubscribeFrom(at, 4)
		stop()
		if len(past) != 1 || past[0].Text != text {
			t.Errorf("from %s: %+v, want the %s", at, past, text)
		}
	}
}

// TestPastIsBounded in bytes, too.
func TestPastIsBounded(t *testing.T) {
	var h Feed
	text := strings.Repeat("x", job.MaxEventText)
	for range 1000 {
		h.publish(api.Update{Kind: api.UpdateEvent, Event: &job.Event{Text: text}})
	}
	if kept := len(h.past) - h.gone; h.pastText > maxPastText || h.pastText != kept*len(text) || kept < 100 {
		t.Errorf("%d updates with %d bytes of text are remembered", kept, h.pastText)
	}
	for range 3 * maxPast {
		h.publish(api.Update{Kind: api.UpdateEvent, Text: "x"})
	}
	if kept := len(h.past) - h.gone; kept != maxPast || len(h.past) > 2*maxPast+1 || h.pastText != maxPast {
		t.Errorf("%d of %d updates with %d bytes of text are remembered", kept, len(h.past), h.pastText)
	}
	h.publish(api.Update{Text: "last"})
	if past := h.since(h.idOf(h.count - 2)); len(past) != 2 || past[0].Text != "x" || past[1].Text != "last" {
		t.Errorf("after the last but one: %+v", past)
	}
}

func TestStateOfCoversEveryEntryState(t *testing.T) {
	for _, s := range job.EntryStates() {
		if got := StateOf(&queue.Entry{State: s, ExitKind: job.ExitFailed}); got.Terminal() != s.Terminal() {
			t.Errorf("entry state %s is shown as %s", s, got)
		}
	}
}
