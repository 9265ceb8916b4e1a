package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// hosts are the logs of schedulers that share documents.
type hosts struct {
	docs   statedir.Documents
	dirs   map[job.InstanceID]string
	chains map[job.InstanceID]*Chain
	names  []job.InstanceID
}

func newHosts(t *testing.T, o Options, names ...job.InstanceID) *hosts {
	t.Helper()
	h := &hosts{docs: statedir.Files(t.TempDir()), dirs: map[job.InstanceID]string{}, chains: map[job.InstanceID]*Chain{}, names: names}
	for _, name := range names {
		h.dirs[name] = filepath.Join(t.TempDir(), string(name))
		h.chains[name] = NewChain(open(t, h.dirs[name], o), h.docs, name)
	}
	return h
}

// minute has each host record something and join, and returns the heads before.
func (h *hosts) minute(t *testing.T, n int) (before map[job.InstanceID]Head) {
	t.Helper()
	before = map[job.InstanceID]Head{}
	for _, name := range h.names {
		c := h.chains[name]
		before[name] = c.log.Head()
		must(t, c.log.Record(t.Context(), request(n)))
		must(t, c.Join(t.Context()))
	}
	return before
}

func (h *hosts) close(t *testing.T) {
	t.Helper()
	for _, c := range h.chains {
		must(t, c.log.Close())
		must(t, c.Publish(t.Context()))
	}
}

func (h *hosts) references(t *testing.T, in, of job.InstanceID) References {
	t.Helper()
	refs, err := ReadReferences(h.dirs[in], of)
	must(t, err)
	return refs
}

// TestChainOfHosts: each log has what the others published, and all agree.
func TestChainOfHosts(t *testing.T) {
	h := newHosts(t, Options{}, "a", "b", "c")
	for n := range 5 {
		h.minute(t, n)
	}
	h.close(t)
	for _, name := range h.names {
		whole(t, h.dirs[name])
		if of, err := InstanceOf(h.dirs[name]); of != name || err != nil {
			t.Errorf("the log of %s says that it is %q's, %v", name, of, err)
		}
		var x Expected
		for _, other := range h.names {
			if other != name {
				x.References = append(x.References, h.references(t, other, name))
			}
		}
		r, err := x.Verify(h.dirs[name])
		if err != nil || !r.Whole() || len(r.Notes) != 2 || !strings.Contains(r.Notes[0], "refers to ") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		file := filepath.Join(h.dirs[name], fileName(1))
		if r, err := x.VerifyFiles([]string{file}); err != nil || !r.Whole() {
			t.Errorf("%s: %+v, %v", file, r, err)
		}
	}
	last, _, err := Last(h.dirs["c"], 1, func(r *api.AuditRecord) bool { return r.Action == ActionHeads })
	if err != nil || len(last) != 1 || last[0].Who.Role != RoleSystem || strings.Contains(string(last[0].Detail), `"c":`) || !strings.Contains(string(last[0].Detail), `"b":`) {
		t.Errorf("the last record of heads is %+v, %v", last, err)
	}
}

// TestChainOfOne: a scheduler that is alone records nothing, and one that hears nothing
// new does not either.
func TestChainOfOne(t *testing.T) {
	h := newHosts(t, Options{}, "a", "b")
	a, b := h.chains["a"], h.chains["b"]
	for range 3 {
		must(t, a.Join(t.Context()))
	}
	if seq := a.log.Head().Seq; seq != 1 {
		t.Errorf("alone it has recorded %d records, want the first of the file", seq)
	}
	must(t, b.Join(t.Context()))
	for range 3 {
		must(t, a.Join(t.Context()))
	}
	if seq := a.log.Head().Seq; seq != 2 {
		t.Errorf("of another one that does nothing it has recorded up to record %d, want 2", seq)
	}
	h.close(t)
	if _, err := ReadReferences(h.dirs["b"], "another"); err == nil || !strings.Contains(err.Error(), "instance another") {
		t.Errorf("references to a log that nobody has: %v", err)
	}
	if of, err := InstanceOf(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Errorf("no log is %q's", of)
	}
}

// TestCutOrRewrittenOnOneHost: a log that was cut or written anew, and is whole in
// itself, is found out by the logs of other hosts.
func TestCutOrRewrittenOnOneHost(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(t *testing.T, dir string, from Head)
		kind Kind
	}{
		"cut":       {func(t *testing.T, dir string, from Head) { tamperWith(t, dir, from, 0) }, Cut},
		"rewritten": {func(t *testing.T, dir string, from Head) { tamperWith(t, dir, from, 40) }, NotThere},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(t, Options{}, "a", "b")
			for n := range 4 {
				h.minute(t, n)
			}
			from := h.minute(t, 4)["a"] // b refers to it already
			for n := range 4 {
				h.minute(t, 5+n)
			}
			h.close(t)
			tc.do(t, h.dirs["a"], from)
			if r := whole(t, h.dirs["a"]); r.Last == from && name != "cut" || r.Last != from && name == "cut" {
				t.Fatalf("tampered with, the log ends with %s", r.Last)
			}
			x := Expected{References: []References{h.references(t, "b", "a")}}
			r, err := x.Verify(h.dirs["a"])
			if err != nil || !slices.Equal(kinds(r), []Kind{tc.kind}) {
				t.Fatalf("%+v, %v; want %s", r, err, tc.kind)
			}
			p := r.Problems[0]
			if p.Seq <= from.Seq || p.Seq > from.Seq+3 || !strings.Contains(p.Text, h.dirs["b"]) || !strings.Contains(p.Text, "so it is with 4 more records") {
				t.Errorf("behind record %d the problem is %+v", from.Seq, p)
			}
			// The other log is as it was.
			if r, err := (&Expected{References: []References{h.references(t, "a", "b")}}).Verify(h.dirs["b"]); err != nil || !r.Whole() {
				t.Errorf("of the other log: %+v, %v", r, err)
			}
		})
	}
}

// tamperWith cuts a log of one file behind a record, and writes n others there and a head
// that matches, as somebody can who has the state directory.
func tamperWith(t *testing.T, dir string, from Head, n int) {
	t.Helper()
	path := filepath.Join(dir, fileName(1))
	text, err := os.ReadFile(path)
	must(t, err)
	end := strings.Index(string(text), from.Hash+"\"}\n") + len(from.Hash) + len("\"}\n")
	must(t, os.Truncate(path, int64(end)))
	must(t, os.WriteFile(filepath.Join(dir, headName), headText(from), 0o600))
	l, err := Open(dir, Options{})
	must(t, err)
	for i := range n {
		must(t, l.Record(t.Context(), request(1000+i)))
	}
	must(t, l.Close())
}

// TestReferencesAndRotation: references to what rotation has removed are no problem, nor
// are those to what stands in files that were not given.
func TestReferencesAndRotation(t *testing.T) {
	h := newHosts(t, Options{MaxSize: 4 << 10, Keep: 3}, "a", "b")
	for n := range 60 {
		h.minute(t, n)
	}
	h.close(t)
	numbers, err := files(h.dirs["a"])
	must(t, err)
	if numbers[0] == 1 || len(numbers) < 3 {
		t.Fatalf("files %v: want some removed", numbers)
	}
	refs := h.references(t, "b", "a")
	r, err := (&Expected{References: []References{refs}}).Verify(h.dirs["a"])
	if err != nil || !r.Whole() {
		t.Errorf("%+v, %v", r, err)
	}
	refs.list = append([]reference{{head: Head{1, strings.Repeat("a", 64)}, record: 1}}, refs.list...)
	middle := filepath.Join(h.dirs["a"], fileName(numbers[1]))
	r, err = (&Expected{References: []References{refs}}).VerifyFiles([]string{middle})
	notes := strings.Join(r.Notes, "\n")
	if err != nil || !r.Whole() || !strings.Contains(notes, fmt.Sprintf("before record %d", r.First)) || !strings.Contains(notes, fmt.Sprintf("behind record %d", r.Last.Seq)) {
		t.Errorf("%s: %+v, %v", middle, r, err)
	}
}

// TestHeadsThatCannotBeUsed: a document that makes no sense is neither used nor replaced;
// what schedulers said that are gone for long is dropped.
func TestHeadsThatCannotBeUsed(t *testing.T) {
	h := newHosts(t, Options{}, "a")
	path := h.docs.Where(statedir.AuditHeads)
	for text, want := range map[string]string{"{": "is damaged", "": "is damaged", `{"version":2}`: "version 2", `{"version":1,"writers":{"b":{"seq":7,"hash":"c0de"}}}`: `"7:c0de" of the writer "b"`} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		for _, err := range []error{h.chains["a"].Join(t.Context()), h.chains["a"].Publish(t.Context())} {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q and the path", text, err, want)
			}
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%q became %q, %v", text, after, err)
		}
	}
	now := time.Now()
	must(t, os.WriteFile(path, fmt.Appendf(nil, `{"version":1,"writers":{"old":{"seq":1,"hash":%q,"time":%q},"gone":{"seq":1,"hash":%[1]q,"time":%[3]q}}}`,
		Genesis, now.Add(-forgetAfter-time.Hour).Format(time.RFC3339), now.Add(-forgetAfter+time.Hour).Format(time.RFC3339)), 0o600))
	must(t, h.chains["a"].Join(t.Context()))
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), `"old"`) || !strings.Contains(string(text), `"gone"`) || !strings.Contains(string(text), h.chains["a"].log.Head().Hash) {
		t.Errorf("it became %s, %v", text, err)
	}
}
