package postgres

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/objects"
	"github.com/agentsched/agentsched/internal/objects/objectstest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func bucketOf(t *testing.T, s *objectstest.Server) *objects.Bucket {
	t.Helper()
	b, err := objects.Open(objects.Config{
		Endpoint: s.URL, Bucket: objectstest.Bucket, Prefix: "p", Region: objectstest.Region, AccessKey: "env:a", SecretKey: "env:s",
	}, func(name string) string {
		return map[string]string{"a": objectstest.AccessKey, "s": objectstest.SecretKey}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func connected(t *testing.T, address, instance string) *Database {
	t.Helper()
	d, err := Connect(t.Context(), config(t, address, instance))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func keep(t *testing.T, x *Artifacts, id job.ID, content string) {
	t.Helper()
	if err := x.Keep(t.Context(), id, 1, "patch", strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

// wantFile reads a patch of a job, which is to have this content.
func wantFile(t *testing.T, x *Artifacts, id job.ID, content string) {
	t.Helper()
	var got bytes.Buffer
	if err := x.Write(t.Context(), id, 1, "patch", &got); err != nil || got.String() != content {
		t.Errorf("job %s: %d bytes of %d came back, or others: %v", id, got.Len(), len(content), err)
	}
}

func wantNone(t *testing.T, x *Artifacts, id job.ID) {
	t.Helper()
	if err := x.Write(t.Context(), id, 1, "patch", io.Discard); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("a file of job %s: %v", id, err)
	}
}

// pieces counts rows that hold content.
func pieces(t *testing.T, d *Database) (n int) {
	t.Helper()
	if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM artifact_pieces`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestObjects: files lie in the bucket, compressed, one object each, for all schedulers of the queue.
func TestObjects(t *testing.T) {
	s, address := objectstest.Start(t), newDatabase(t)
	d, other := connected(t, address, "a"), connected(t, address, "b")
	x, y := d.Artifacts(bucketOf(t, s)), other.Artifacts(bucketOf(t, s))
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise) //nolint:errcheck // it never fails
	large := strings.Repeat("0123456789", 1<<18)
	for content, most := range map[string]int{"first": 100, large: len(large) / 20, "": 100, string(noise): len(noise) + 4096} {
		keep(t, x, "j", content)
		wantFile(t, y, "j", content)
		all := s.Objects(t)
		for key, packed := range all {
			if !strings.HasPrefix(key, "p/"+d.id+"/j/1/patch.") || len(packed) > most {
				t.Errorf("%d bytes are object %s of %d bytes, want %d at most", len(content), key, len(packed), most)
			}
		}
		if len(all) != 1 {
			t.Errorf("the bucket has %d objects, want 1", len(all))
		}
	}
	if n := pieces(t, d); n != 0 {
		t.Errorf("the database has %d pieces", n)
	}
	if left, err := os.ReadDir(d.cfg.Folder); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
	failing := errors.New("the disk is gone")
	if err := x.Keep(t.Context(), "j", 1, "patch", &broken{strings.NewReader(large), failing}); !errors.Is(err, failing) {
		t.Errorf("a file that cannot be read: %v", err)
	}
	if n := len(s.Keys(t)); n != 1 {
		t.Errorf("after that the bucket has %d objects, want 1", n)
	}
	if err := x.CheckBucket(t.Context()); err != nil {
		t.Error(err)
	}
	wantNone(t, x, "none")
}

// TestSwitch: files of before a bucket was configured are read with it, and those in it say what is missing without it.
func TestSwitch(t *testing.T) {
	s := objectstest.Start(t)
	d := connected(t, newDatabase(t), "a")
	x, old := d.Artifacts(bucketOf(t, s)), d.Artifacts(nil)
	keep(t, old, "j", "old")
	keep(t, old, "k", "other")
	wantFile(t, x, "j", "old")
	keep(t, x, "j", "new")
	wantFile(t, x, "j", "new")
	wantFile(t, old, "k", "other")
	if n := pieces(t, d); n != 1 {
		t.Errorf("the database has %d pieces, want that of k", n)
	}
	if err := old.Write(t.Context(), "j", 1, "patch", io.Discard); err == nil || !strings.Contains(err.Error(), "set fleet.artifacts") {
		t.Errorf("read without a bucket: %v", err)
	}
	keep(t, old, "j", "back")
	wantFile(t, x, "j", "back")
}

// TestObjectsAway: a bucket that is away fails what needs it, and leaves what was kept.
func TestObjectsAway(t *testing.T) {
	s := objectstest.Start(t)
	x := connected(t, newDatabase(t), "a").Artifacts(bucketOf(t, s))
	keep(t, x, "j", "first")
	s.Away(true)
	if err := x.Keep(t.Context(), "j", 1, "patch", strings.NewReader("second")); err == nil || !strings.Contains(err.Error(), s.URL) {
		t.Errorf("kept while the service is away: %v", err)
	}
	if err := x.Forget(t.Context()); err == nil {
		t.Error("forgotten while the service is away")
	}
	s.Away(false)
	wantFile(t, x, "j", "first")
	keep(t, x, "j", "second")
	wantFile(t, x, "j", "second")
	if err := x.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNone(t, x, "j")
	if left := s.Keys(t); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
}

// TestLateWriter: whoever wrote last has its content there, and a reader finds it also when it was replaced meanwhile.
func TestLateWriter(t *testing.T) {
	s, address := objectstest.Start(t), newDatabase(t)
	x, y := connected(t, address, "a").Artifacts(bucketOf(t, s)), connected(t, address, "b").Artifacts(bucketOf(t, s))
	keep(t, x, "j", "first")
	once := true
	s.Before(func(r *http.Request) {
		if once && r.Method == http.MethodPut {
			once = false
			keep(t, y, "j", "second")
		}
	})
	keep(t, x, "j", "late")
	wantFile(t, y, "j", "late")
	once = true
	s.Before(func(r *http.Request) {
		if once && r.Method == http.MethodGet {
			once = false
			keep(t, y, "j", "third")
		}
	})
	wantFile(t, x, "j", "third")
	if left := s.Keys(t); len(left) != 1 {
		t.Errorf("left are %q", left)
	}
}

// TestForgetObjects: the objects of jobs that are gone are removed before their rows, those without a row when they are old.
func TestForgetObjects(t *testing.T) {
	s := objectstest.Start(t)
	m := join(t, config(t, newDatabase(t), "a"))
	l, term := m.lead(t)
	defer m.resign(t, l, term)
	e := newEntry("one")
	if err := l.Enqueue(t.Context(), queue.Batch{ID: "b", Source: "x", CreatedAt: at}, []queue.Entry{e}); err != nil {
		t.Fatal(err)
	}
	x := m.Artifacts(bucketOf(t, s))
	now := time.Now()
	ours := "p/" + m.id + "/"
	s.SetNow(now.Add(-orphanAge - time.Hour))
	keep(t, x, e.ID, "stays")
	for n := range objectStep + 3 { // more than one page
		s.Put(t, fmt.Sprintf("%sj/1/orphan.%04d", ours, n), nil)
	}
	s.Put(t, "p/another-queue/j/1/x", nil)
	s.Put(t, "mine", nil)
	s.SetNow(now)
	s.Put(t, ours+"j/1/under-way", nil)
	keep(t, x, "gone", "goes")
	s.Before(func(r *http.Request) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/gone/") {
			wantRow(t, m.Database, "gone") // until its object is gone
		}
	})
	if err := x.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFile(t, x, e.ID, "stays")
	wantNone(t, x, "gone")
	left := s.Keys(t)
	if len(left) != 4 || !slices.Contains(left, ours+"j/1/under-way") || !slices.Contains(left, "mine") || !slices.Contains(left, "p/another-queue/j/1/x") {
		t.Errorf("left are %q", left)
	}
}

func wantRow(t *testing.T, d *Database, id job.ID) {
	t.Helper()
	var n int
	if err := d.pool.QueryRow(context.Background(), `SELECT count(*) FROM artifacts WHERE job = $1`, string(id)).Scan(&n); err != nil || n != 1 {
		t.Errorf("job %s has %d rows, %v", id, n, err)
	}
}

// TestHostileObjects: what the owner of a bucket puts in place of a file is refused, and never more is written than the file had.
func TestHostileObjects(t *testing.T) {
	s := objectstest.Start(t)
	x := connected(t, newDatabase(t), "a").Artifacts(bucketOf(t, s))
	content := strings.Repeat("content ", 1000)
	pack := func(content io.Reader) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := io.Copy(z, content); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	whole := pack(strings.NewReader(content))
	padded := append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}, bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, 1<<20)...) // stored blocks without content
	flipped := slices.Clone(whole)
	flipped[len(flipped)-6] ^= 1 // of the check sum
	for what, c := range map[string]struct {
		object []byte
		want   string
	}{
		"one that is cut":         {whole[:len(whole)/2], "it ends after "},
		"one without its end":     {whole[:len(whole)-8], "it ends after 8000 bytes of 8000"},
		"an empty one":            {nil, "it ends after 0 bytes of 8000"},
		"no gzip":                 {[]byte(content), "gzip: invalid header"},
		"a wrong check sum":       {flipped, "gzip: invalid checksum"},
		"a shorter one":           {pack(strings.NewReader("content")), "it ends after 7 bytes of 8000"},
		"another of its size":     {pack(strings.NewReader(strings.ToUpper(content))), "its SHA-256 is "},
		"one that begins like it": {pack(strings.NewReader(content + "!")), "it has more than 8000 bytes"},
		"a bomb":                  {pack(io.LimitReader(zeroes{}, 256<<20)), "it has more than 8000 bytes"},
		"one of empty blocks":     {padded, "it ends after 0 bytes of 8000"},
	} {
		keep(t, x, "j", content)
		s.Put(t, s.Keys(t)[0], c.object)
		var got bytes.Buffer
		err := x.Write(t.Context(), "j", 1, "patch", &got)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "object "+x.keys()+"j/1/patch.") {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
		if got.Len() > len(content) {
			t.Errorf("%s: %d bytes were written, want %d at most", what, got.Len(), len(content))
		}
	}
	keep(t, x, "j", content)
	s.Remove(t, s.Keys(t)[0])
	if err := x.Write(t.Context(), "j", 1, "patch", io.Discard); err == nil || !strings.Contains(err.Error(), "it was lost from the bucket") {
		t.Errorf("one that was removed: %v", err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
