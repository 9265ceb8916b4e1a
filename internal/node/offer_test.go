package node

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// TestOffer: a node tells when it offers something else: now and then, and soon after a run has ended. A scheduler takes it from no session
// that is over, and ends that of a node which offers what cannot be, or something else all the time.
func TestOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l := lead(t, &net, "s", nil)
		defer l.stop()
		w := work(t, &net, t.TempDir(), "s:1")
		defer w.end() //nolint:errcheck // it is told to
		<-w.live
		synctest.Wait()
		offered := func(what string, mirrors ...string) {
			t.Helper()
			synctest.Wait()
			if h := l.theCore().Host(); !slices.Equal(h.Mirrors, mirrors) || slices.Contains(h.Kinds, "claude") != (len(mirrors) > 0) {
				t.Errorf("%s: the host is %+v", what, h)
			}
		}
		offered("at first")
		ready := []Worker{{Kind: "claude", Ready: true}}
		w.offer(Inventory{Slots: 2, Workers: ready, Mirrors: []string{"aa"}})
		pass(offerEvery)
		offered("a while later", "aa")
		w.offer(Inventory{Slots: 2, Workers: ready, Mirrors: []string{"aa", "bb"}})
		pass(offerAtLeast)
		if err := l.theCore().Call(t.Context(), ipc.MethodSubmitJob, ipc.SubmitJob{Job: "j", Attempt: 1}, nil); err != nil {
			t.Fatal(err)
		}
		w.tell(ipc.NotifyJobCompleted, "j", 0)
		offered("after a run", "aa", "bb")

		first := w.welcomed()
		for range offersAtOnce + 1 { // what the node told counts, too
			if err := first.ctl.Notify(t.Context(), notifyOffer, Inventory{Slots: 2}); err != nil {
				break
			}
		}
		<-first.ended
		pass(lastRetry)
		offered("once it was sent away", "aa", "bb")
		for what, v := range map[string]Inventory{"no slots": {}, "unsorted": {Slots: 2, Mirrors: []string{"b", "a"}}, "too many": {Slots: 2, Mirrors: make([]string, MaxMirrors+1)}} {
			s := w.welcomed()
			if s == nil || s == first {
				t.Fatalf("there is no new session before %s", what)
			}
			if err := s.ctl.Notify(t.Context(), notifyOffer, v); err != nil {
				t.Fatal(err)
			}
			<-s.ended
			pass(lastRetry)
		}
		offered("in the end", "aa", "bb")
	})
}

// TestMirrorNames: repositories of different tenants have different mirrors.
func TestMirrorNames(t *testing.T) {
	seen := map[string]bool{"": true}
	for _, w := range []job.Workspace{{Repo: "https://example.com/a"}, {Repo: "https://example.com/b"}, {Parcel: job.Parcel{Digest: "d", Repository: "https://example.com/a"}}} {
		for _, tenant := range []job.Tenant{"a", "b"} {
			name := w.Mirror(tenant)
			if seen[name] || len(name) != 32 {
				t.Errorf("%+v of %s is called %q", w, tenant, name)
			}
			seen[name] = true
		}
	}
	if name := (&job.Workspace{Path: "/a"}).Mirror("a"); name != "" {
		t.Errorf("a folder has the mirror %q", name)
	}
}
