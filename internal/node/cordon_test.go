package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/supervisor"
)

func loadCordons(t *testing.T, docs statedir.Documents) *Cordons {
	t.Helper()
	c, err := LoadCordons(t.Context(), docs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// statusOf returns how a node stands with its scheduler, in words.
func statusOf(t *testing.T, n *Nodes, name string) (words string) {
	t.Helper()
	for _, s := range n.Status() {
		if s.Name != name {
			continue
		}
		for word, is := range map[string]bool{"came": s.Came, "connected": s.Connected, "lost": s.Lost, "closed": s.Closed, "cordoned": s.Cordon != nil} {
			if is {
				words += " " + word
			}
		}
		list := strings.Fields(words)
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	return "not there"
}

// A cordon closes the node for whoever leads, also before it has come, until it is lifted.
func TestCordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		docs := statedir.Files(t.TempDir(), statedir.NodesFile)
		l := lead(t, &net, "s", func(l *leader) { l.cordons = loadCordons(t, docs) })
		defer l.stop()
		w := work(t, &net, t.TempDir(), "s:1", "r:1")
		defer w.end() //nolint:errcheck // told to
		<-w.live
		synctest.Wait()
		if got := statusOf(t, l.nodes, "a"); got != "came connected" || l.theCore().Host().Closed {
			t.Errorf("at the beginning it is %q", got)
		}
		why := Cordon{Why: "a new kernel", By: "anna", Since: time.Now()}
		if err := l.nodes.Cordon(t.Context(), "a", why); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, l.nodes, "a"); got != "came closed connected cordoned" || !l.theCore().Host().Closed {
			t.Errorf("cordoned it is %q", got)
		}
		l.stop()
		next := lead(t, &net, "r", func(l *leader) { l.cordons = loadCordons(t, docs) })
		defer next.stop()
		if got := statusOf(t, next.nodes, "a"); got != "closed cordoned" {
			t.Errorf("for the next leader it is %q before it comes", got)
		}
		pass(lease)
		if got := statusOf(t, next.nodes, "a"); got != "came closed connected cordoned" || !next.theCore().Host().Closed {
			t.Errorf("for the next leader it is %q", got)
		}
		if c := next.nodes.Status()[0].Cordon; c.Why != why.Why || c.By != why.By || !c.Since.Equal(why.Since) {
			t.Errorf("the cordon is %+v", c)
		}
		if err := next.nodes.Uncordon(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, next.nodes, "a"); got != "came connected" || next.theCore().Host().Closed {
			t.Errorf("uncordoned it is %q", got)
		}
		if left := loadCordons(t, docs).all(); len(left) != 0 {
			t.Errorf("the document still has %v", left)
		}
		for _, name := range []string{"", ".", "a/b", "a b", strings.Repeat("x", 65)} {
			if err := next.nodes.Cordon(t.Context(), name, why); !errors.Is(err, ErrName) {
				t.Errorf("cordon %q: %v", name, err)
			}
		}
		if err := next.nodes.Uncordon(t.Context(), "b"); !errors.Is(err, ErrUnknown) {
			t.Errorf("uncordon a node that is not there: %v", err)
		}
	})
}

// A cordon that cannot be written is none, and a document that cannot be read is said.
func TestCordonNotDurable(t *testing.T) {
	docs := statedir.Files(t.TempDir(), statedir.NodesFile)
	c := loadCordons(t, docs)
	if err := os.Mkdir(docs.Where(statedir.NodesFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.change(t.Context(), "a", &Cordon{}); err == nil || len(c.all()) != 0 {
		t.Errorf("%v, %v", err, c.all())
	}
	if _, err := LoadCordons(t.Context(), docs); err == nil {
		t.Error("a folder was read")
	}
	if err := os.Remove(docs.Where(statedir.NodesFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(docs.Where(statedir.NodesFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCordons(t.Context(), docs); err == nil || !strings.Contains(err.Error(), docs.Where(statedir.NodesFile)) {
		t.Errorf("a damaged document: %v", err)
	}
}

// A node that its operator gives up has nothing any more, and comes again as another one.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net cable
		l := lead(t, &net, "s", func(l *leader) {
			l.cordons = loadCordons(t, statedir.Files(t.TempDir(), statedir.NodesFile))
		})
		defer l.stop()
		w := work(t, &net, t.TempDir(), "s:1")
		defer w.end() //nolint:errcheck // told to
		<-w.live
		synctest.Wait()
		if err := l.nodes.Cordon(t.Context(), "a", Cordon{}); err != nil {
			t.Fatal(err)
		}
		net.part(true)
		synctest.Wait()
		l.take()
		if got := statusOf(t, l.nodes, "a"); got != "came closed cordoned" {
			t.Errorf("cut off it is %q", got)
		}
		if err := l.nodes.GiveUp(t.Context(), "a", false); err != nil {
			t.Fatal(err)
		}
		wants(t, "given up", l.take(), "down a/1 lost=true replaced=false")
		if got := statusOf(t, l.nodes, "a"); got != "not there" {
			t.Errorf("given up it is %q", got)
		}
		if err := l.nodes.GiveUp(t.Context(), "a", false); !errors.Is(err, ErrUnknown) {
			t.Errorf("given up twice: %v", err)
		}
		net.part(false)
		pass(2 * lastRetry)
		wants(t, "when it comes again", l.take(), "up a/1 past=false")
		if got := statusOf(t, l.nodes, "a"); got != "came connected" {
			t.Errorf("when it comes again it is %q", got)
		}
	})
}

// heir notes of which nodes it is told that they have nothing.
type heir struct {
	*leader
	empty []string
}

func (h *heir) CoresTakeOver(_ context.Context, node string, runs []supervisor.HeldRun) ([]supervisor.Verdict, error) {
	if len(runs) == 0 {
		h.empty = append(h.empty, node)
	}
	return nil, nil
}

// What an earlier scheduler has left on a node that never came goes on elsewhere once its operator gives it up.
func TestGiveUpLeft(t *testing.T) {
	h := &heir{leader: &leader{t: t}}
	n, err := NewNodes(NodesConfig{Handler: h, Lease: lease, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.GiveUp(t.Context(), "b", true); err != nil || !slices.Equal(h.empty, []string{"b"}) || len(n.list()) != 0 {
		t.Errorf("%v, told %q", err, h.empty)
	}
}
