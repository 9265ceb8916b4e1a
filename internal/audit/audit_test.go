package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/redact"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		writeForEver(dir)
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, o Options) *Log {
	t.Helper()
	l, err := Open(dir, o)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func request(n int) Entry {
	return Entry{Who: api.AuditWho{Name: "ann", Role: "operate", Door: "unix"}, Action: "job.cancel", Target: fmt.Sprintf("job-%d", n), Detail: map[string]any{"n": n}}
}

func whole(t *testing.T, dir string, expect ...Head) Report {
	t.Helper()
	r, err := Verify(dir, expect...)
	must(t, err)
	if !r.Whole() {
		t.Fatalf("problems: %+v", r.Problems)
	}
	return r
}

func kinds(r Report) (list []Kind) {
	for _, p := range r.Problems {
		list = append(list, p.Kind)
	}
	return list
}

// some makes a log of n requests and returns its folder, its last file and the head.
func some(t *testing.T, n int, o Options) (dir, last string, head Head) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, o)
	for i := range n {
		must(t, l.Record(t.Context(), request(i)))
	}
	head = l.Head()
	must(t, l.Close())
	numbers, err := files(dir)
	must(t, err)
	return dir, filepath.Join(dir, fileName(numbers[len(numbers)-1])), head
}

func TestLogGoesOnWhereItWas(t *testing.T) {
	dir, last, head := some(t, 3, Options{})
	if head.Seq != 4 { // a file's first record is its own
		t.Errorf("head %v", head)
	}
	l := open(t, dir, Options{Redact: redact.New(redact.Value{Name: "K", Text: "swordfish"})})
	e := request(9)
	e.Who.Name, e.Target, e.Detail = "ann swordfish", "x swordfish", map[string]any{"text": "a swordfish", "swordfish": 1}
	must(t, l.Record(t.Context(), e))
	must(t, l.Close())
	must(t, l.Close())
	if err := l.Record(t.Context(), e); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if r := whole(t, dir, head); r.Records != 5 || r.First != 1 || r.Last.Seq != 5 || r.Last != l.Head() {
		t.Errorf("report %+v", r)
	}
	text, err := os.ReadFile(last)
	must(t, err)
	if bytes.Contains(text, []byte("swordfish")) || bytes.Count(text, []byte("[redacted:K]")) != 4 {
		t.Errorf("secrets: %s", text)
	}
	if info, err := os.Stat(last); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Every byte counts: whichever is changed, that is found, and so is every line
// that is taken out, written twice or moved, and every end that is cut off.
func TestEveryEditIsFound(t *testing.T) {
	dir, _, _ := some(t, 4, Options{MaxSize: 900})
	whole(t, dir)
	numbers, err := files(dir)
	must(t, err)
	if len(numbers) < 2 {
		t.Fatalf("files %v", numbers)
	}
	found := func(what, path string, text []byte, wrong func([]byte) []byte) {
		t.Helper()
		must(t, os.WriteFile(path, wrong(bytes.Clone(text)), 0o600))
		if r, err := Verify(dir); err != nil || r.Whole() {
			t.Errorf("%s of %s was not found: %v", what, filepath.Base(path), err)
		}
		must(t, os.WriteFile(path, text, 0o600))
	}
	for which, n := range numbers {
		path := filepath.Join(dir, fileName(n))
		text, err := os.ReadFile(path)
		must(t, err)
		for i := range text {
			if which > 0 && i%13 > 0 { // one file byte by byte, the others here and there
				continue
			}
			found(fmt.Sprintf("byte %d", i), path, text, func(b []byte) []byte { b[i] ^= byte(1 + i%255); return b })
			if i%26 == 0 {
				found(fmt.Sprintf("the cut at %d", i), path, text, func(b []byte) []byte { return b[:i] })
				found(fmt.Sprintf("the insertion at %d", i), path, text, func(b []byte) []byte { return append(b[:i:i], append([]byte("x"), b[i:]...)...) })
			}
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		lines = lines[:len(lines)-1]
		for i := range lines {
			found(fmt.Sprintf("the lost line %d", i), path, text, func([]byte) []byte {
				return bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
			})
			found(fmt.Sprintf("line %d, there twice,", i), path, text, func([]byte) []byte {
				return bytes.Join(append(append([][]byte{}, lines[:i+1]...), lines[i:]...), nil)
			})
			for j := range i {
				found(fmt.Sprintf("the swap of %d and %d", i, j), path, text, func([]byte) []byte {
					other := append([][]byte{}, lines...)
					other[i], other[j] = other[j], other[i]
					return bytes.Join(other, nil)
				})
			}
		}
		must(t, os.Rename(path, path+".away"))
		if r, err := Verify(dir); err != nil || r.Whole() {
			t.Errorf("the loss of %s was not found: %v", filepath.Base(path), err)
		}
		must(t, os.Rename(path+".away", path))
	}
	whole(t, dir)
}

// A random edit of any length is found.
func TestRandomEditIsFound(t *testing.T) {
	dir, last, _ := some(t, 5, Options{})
	text, err := os.ReadFile(last)
	must(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		from := rapid.IntRange(0, len(text)).Draw(rt, "from")
		to := rapid.IntRange(from, len(text)).Draw(rt, "to")
		other := append(append(bytes.Clone(text[:from]), rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "with")...), text[to:]...)
		must(t, os.WriteFile(last, other, 0o600))
		if r, err := Verify(dir); err != nil || r.Whole() != bytes.Equal(text, other) {
			rt.Fatalf("whole %v, %v", r.Whole(), err)
		}
	})
}

func TestProblemsSayWhatAndWhere(t *testing.T) {
	for _, c := range []struct {
		name  string
		wrong func(t *testing.T, dir, last string, lines [][]byte) [][]byte
		want  Problem
	}{
		{"edited", func(_ *testing.T, _, _ string, l [][]byte) [][]byte {
			l[2] = bytes.Replace(l[2], []byte("ann"), []byte("bob"), 1)
			return l
		}, Problem{Line: 3, Seq: 3, Kind: Edited}},
		{"chained anew by somebody", func(_ *testing.T, _, _ string, l [][]byte) [][]byte {
			r, _ := parse(bytes.TrimSuffix(l[2], []byte("\n")))
			r.Who.Name = "bob"
			l[2], _, _ = seal(&r, Head{r.Seq - 1, r.Prev})
			return l
		}, Problem{Line: 4, Seq: 4, Kind: Edited}},
		{"cut out", func(_ *testing.T, _, _ string, l [][]byte) [][]byte { return append(l[:2:2], l[3:]...) }, Problem{Line: 3, Seq: 3, Kind: Cut}},
		{"swapped", func(_ *testing.T, _, _ string, l [][]byte) [][]byte { l[2], l[3] = l[3], l[2]; return l }, Problem{Line: 3, Seq: 3, Kind: Reordered}},
		{"torn", func(_ *testing.T, _, _ string, l [][]byte) [][]byte { l[4] = l[4][:20]; return l }, Problem{Line: 5, Seq: 5, Kind: TornTail}},
		{"end cut off", func(_ *testing.T, _, _ string, l [][]byte) [][]byte { return l[:4] }, Problem{Seq: 5, Kind: Cut}},
		{"no head", func(t *testing.T, dir, _ string, l [][]byte) [][]byte {
			must(t, os.Remove(filepath.Join(dir, headName)))
			return l
		}, Problem{Kind: NoHead}},
		{"first cut out", func(_ *testing.T, _, _ string, l [][]byte) [][]byte { return l[2:] }, Problem{Line: 1, Seq: 3, Kind: MissingFile}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, last, _ := some(t, 4, Options{})
			text, err := os.ReadFile(last)
			must(t, err)
			lines := bytes.SplitAfter(text, []byte("\n"))
			must(t, os.WriteFile(last, bytes.Join(c.wrong(t, dir, last, lines[:len(lines)-1]), nil), 0o600))
			r, err := Verify(dir)
			must(t, err)
			if r.Whole() {
				t.Fatal("not found")
			}
			if got := r.Problems[0]; got.Kind != c.want.Kind || got.Seq != c.want.Seq || got.Line != c.want.Line || got.Text == "" {
				t.Errorf("problems %+v, want %+v", r.Problems, c.want)
			}
		})
	}
}

// A chain that somebody has written anew from some record on is whole; an anchor
// that was kept elsewhere says that it is another one.
func TestAnchors(t *testing.T) {
	dir, last, head := some(t, 4, Options{})
	whole(t, dir, head)
	text, err := os.ReadFile(last)
	must(t, err)
	var out []byte
	chain := Head{Hash: Genesis}
	for line := range bytes.Lines(text) {
		r, err := parse(bytes.TrimSuffix(line, []byte("\n")))
		must(t, err)
		r.Who.Name = strings.Replace(r.Who.Name, "ann", "bob", 1)
		var sealed []byte
		sealed, chain, err = seal(&r, chain)
		must(t, err)
		out = append(out, sealed...)
	}
	must(t, os.WriteFile(last, out, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, headName), headText(chain), 0o600))
	whole(t, dir)
	r, err := Verify(dir, head)
	must(t, err)
	if got := kinds(r); len(got) != 1 || got[0] != NotThere || r.Problems[0].Seq != head.Seq {
		t.Errorf("problems %+v", r.Problems)
	}
	if h, err := ParseHead(head.String()); err != nil || h != head {
		t.Errorf("head %v, %v", h, err)
	}
	for _, bad := range []string{"", "1", "1:ab", "x:" + head.Hash, "-1:" + head.Hash, "01:" + head.Hash, "1:" + strings.ToUpper(head.Hash[:63]) + "F"} {
		if _, err := ParseHead(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestRotationKeepsAndSaysWhatItRemoved(t *testing.T) {
	dir, _, _ := some(t, 40, Options{MaxSize: 1500, Keep: 3})
	numbers, err := files(dir)
	must(t, err)
	r := whole(t, dir)
	if len(numbers) != 3 || numbers[0] == 1 || r.First == 1 || len(r.Files) != 3 {
		t.Errorf("files %v, report %+v", numbers, r)
	}
	if !strings.Contains(strings.Join(r.Notes, " "), fmt.Sprintf("records 1 to %d were removed by rotation", r.First-1)) {
		t.Errorf("notes %q", r.Notes)
	}
	for _, n := range numbers {
		info, err := os.Stat(filepath.Join(dir, fileName(n)))
		must(t, err)
		if info.Size() > 2200 { // a record about the removal may come on top
			t.Errorf("file %d has %d bytes", n, info.Size())
		}
	}
	// Any of the files can be looked at alone.
	path := filepath.Join(dir, fileName(numbers[1]))
	if part, err := VerifyFiles([]string{path}); err != nil || !part.Whole() || len(part.Notes) != 1 || part.First <= r.First {
		t.Errorf("one file alone: %+v, %v", part, err)
	}
	// One more file that is missing is told from those that rotation took.
	must(t, os.Remove(filepath.Join(dir, fileName(numbers[0]))))
	if r, err := Verify(dir); err != nil || r.Whole() || r.Problems[0].Kind != MissingFile {
		t.Errorf("problems %+v, %v", r.Problems, err)
	}
}

// What a crash left of a line is put into a record, wherever it tore.
func TestTornTail(t *testing.T) {
	dir, last, _ := some(t, 2, Options{})
	text, err := os.ReadFile(last)
	must(t, err)
	start := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	second := bytes.IndexByte(text, '\n') + 1
	keep := [][]byte{text[start:], []byte(strings.Repeat("long ", 2000))}
	for _, tail := range keep {
		for _, n := range []int{1, len(tail) / 2, len(tail) - 1} {
			os.Remove(filepath.Join(dir, headName))
			r, err := parse(text[second : start-1])
			must(t, err)
			must(t, os.WriteFile(filepath.Join(dir, headName), headText(Head{r.Seq, r.Hash}), 0o600))
			must(t, os.WriteFile(last, append(bytes.Clone(text[:start]), tail[:n]...), 0o600))
			l := open(t, dir, Options{})
			must(t, l.Record(t.Context(), request(7)))
			must(t, l.Close())
			report := whole(t, dir)
			if report.Records != 4 || !strings.Contains(strings.Join(report.Notes, " "), fmt.Sprintf(`"bytes":%d`, n)) {
				t.Errorf("%d bytes: %+v", n, report)
			}
		}
	}
	// A file of which only a part of the first line is there.
	next := filepath.Join(dir, fileName(2))
	must(t, os.WriteFile(next, []byte(`{"seq":`), 0o600))
	l := open(t, dir, Options{})
	must(t, l.Close())
	if r := whole(t, dir); len(r.Files) != 2 {
		t.Errorf("report %+v", r)
	}
}

// A log that was changed while it was closed is not mended: the next opening
// says so, and goes on in a file of its own.
func TestOpenNoticesDamage(t *testing.T) {
	for name, wrong := range map[string]func(dir, last string, text []byte){
		"edited": func(_, last string, text []byte) {
			text[len(text)-100] ^= 1
			os.WriteFile(last, text, 0o600)
		},
		"cut": func(_, last string, text []byte) {
			os.WriteFile(last, text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1], 0o600)
		},
		"removed": func(_, last string, _ []byte) { os.Remove(last) },
		"head":    func(dir, _ string, _ []byte) { os.Remove(filepath.Join(dir, headName)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, last, _ := some(t, 4, Options{})
			text, err := os.ReadFile(last)
			must(t, err)
			wrong(dir, last, text)
			l := open(t, dir, Options{})
			must(t, l.Record(t.Context(), request(1)))
			must(t, l.Close())
			if r, err := Verify(dir); err != nil || r.Whole() || r.Problems[len(r.Problems)-1].Kind != Noticed && kinds(r)[0] != Edited {
				t.Errorf("problems %+v, %v", r.Problems, err)
			}
		})
	}
}

func TestOneProcessAtATime(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	if _, err := Open(dir, Options{Wait: -1}); !errors.Is(err, ErrHeld) {
		t.Errorf("a second one: %v", err)
	}
	must(t, l.Close())
	must(t, Once(t.Context(), dir, Options{}, request(1)))
	if r := whole(t, dir); r.Records != 2 {
		t.Errorf("report %+v", r)
	}
}

// Many goroutines record at once: each entry is there once, in one chain, and
// each that was acknowledged is on disk.
func TestConcurrentRecords(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{MaxSize: 20_000, Keep: 100})
	var all sync.WaitGroup
	const each, writers = 25, 8
	for w := range writers {
		all.Go(func() {
			for i := range each {
				if i%5 == 0 {
					if err := l.Record(context.Background(), request(w*each+i)); err != nil {
						t.Error(err)
					}
					continue
				}
				l.Note(request(w*each + i))
			}
		})
	}
	all.Wait()
	must(t, l.Close())
	whole(t, dir)
	list, damaged, err := Last(dir, 10_000, func(r *api.AuditRecord) bool { return r.Action == "job.cancel" })
	must(t, err)
	seen := map[string]int{}
	for _, r := range list {
		seen[r.Target]++
	}
	if len(list) != each*writers || len(seen) != each*writers || damaged != 0 {
		t.Errorf("%d records of %d requests, %d damaged", len(list), len(seen), damaged)
	}
}

// What Note was told is on disk in time without anybody waiting for it.
func TestNotesAreOnDiskInTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, dir, Options{})
		l.Note(request(1))
		synctest.Wait()
		if l.Head().Seq != 1 {
			t.Errorf("head %v: it was synced at once", l.Head())
		}
		time.Sleep(DefaultSync)
		synctest.Wait()
		if l.Head().Seq != 2 {
			t.Errorf("head %v", l.Head())
		}
		must(t, l.Close())
	})
	whole(t, dir)
}

// A disk that is full costs records, which is told, and stops nothing; when there
// is room again the gap is in the log, also behind a write of which a part was done.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		full, part := false, 0
		var lost int64
		var told error
		l := open(t, dir, Options{
			write: func(f *os.File, p []byte, at int64) (int, error) {
				if full {
					n, _ := f.WriteAt(p[:min(part, len(p))], at)
					return n, syscall.ENOSPC
				}
				return f.WriteAt(p, at)
			},
			Failed: func(err error, n int64) { told, lost = err, lost+n },
		})
		must(t, l.Record(t.Context(), request(1)))
		full, part = true, 30
		if err := l.Record(t.Context(), request(2)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("error %v", err)
		}
		l.Note(request(3))
		synctest.Wait()
		if lost != 2 || told == nil {
			t.Errorf("told of %d: %v", lost, told)
		}
		full = false
		must(t, l.Record(t.Context(), request(4)))
		must(t, l.Close())
	})
	r := whole(t, dir)
	list, _, err := Last(dir, 10, nil)
	must(t, err)
	var actions []string
	for _, r := range list {
		actions = append(actions, r.Action)
	}
	if fmt.Sprint(actions) != "[log.begin job.cancel log.gap job.cancel]" || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], `"records":2`) {
		t.Errorf("actions %v, notes %q", actions, r.Notes)
	}
}

// More than the queue holds is counted, not waited for.
func TestOverflowIsCounted(t *testing.T) {
	dir := t.TempDir()
	gate := make(chan struct{})
	var once sync.Once
	l := open(t, dir, Options{write: func(f *os.File, p []byte, at int64) (int, error) {
		if at > 0 { // not the file's first record
			once.Do(func() { <-gate })
		}
		return f.WriteAt(p, at)
	}})
	const n = maxQueue + maxBatch + 100
	for i := range n {
		l.Note(request(i))
	}
	close(gate)
	must(t, l.Close())
	whole(t, dir)
	gaps, _, err := Last(dir, 10, func(r *api.AuditRecord) bool { return r.Action == ActionGap })
	must(t, err)
	requests, _, err := Last(dir, n, func(r *api.AuditRecord) bool { return r.Action == "job.cancel" })
	must(t, err)
	total := int64(len(requests))
	for _, r := range gaps {
		var g gap
		must(t, json.Unmarshal(r.Detail, &g))
		total += g.Records
	}
	if len(gaps) == 0 || total != n {
		t.Errorf("%d requests and %d gaps: %d of %d", len(requests), len(gaps), total, n)
	}
}

func TestLastFilters(t *testing.T) {
	dir, _, _ := some(t, 10, Options{MaxSize: 900})
	list, damaged, err := Last(dir, 3, func(r *api.AuditRecord) bool { return r.Action == "job.cancel" })
	must(t, err)
	if len(list) != 3 || list[0].Target != "job-7" || list[2].Target != "job-9" || damaged != 0 {
		t.Errorf("%+v, %d", list, damaged)
	}
	if _, _, err := Last(filepath.Join(dir, "none"), 1, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
