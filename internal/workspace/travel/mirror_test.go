package travel

import (
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
)

// TestWayBack: the patch of what a run changed in a checkout is applied to the
// submitter's folder, whose own changes stay.
func TestWayBack(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a.txt": "1\n2\n3\n4\n5\n6\n7\n8\n", "bin": "a\x00b", "old-name": strings.Repeat("moved\n", 20), "gone": "x\n", "run.sh": "echo\n", "link": "was a file\n"})
	h.write(h.repo, map[string]string{"a.txt": "one\n2\n3\n4\n5\n6\n7\n8\n", "untracked": "mine\n", "bin": "a\x00c", "gone-too": "mine\n"})
	m, p, c := h.travel(h.repo, "there")
	// The run.
	h.write(c.Top, map[string]string{"a.txt": "one\n2\n3\n4\n5\n6\n7\neight\n", "bin": "a\x00d\xff", "untracked": "mine\nand the run's\n", "new/bin": "\x00\x01", "new/text": "new\n"})
	for _, err := range []error{
		os.Rename(filepath.Join(c.Top, "old-name"), filepath.Join(c.Top, "new-name")), os.Remove(filepath.Join(c.Top, "gone")), os.Remove(filepath.Join(c.Top, "gone-too")),
		os.Chmod(filepath.Join(c.Top, "run.sh"), 0o755), os.Remove(filepath.Join(c.Top, "link")), os.Symlink("a.txt", filepath.Join(c.Top, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	h.git(c.Top, "add", "-A")
	patch := filepath.Join(h.dir, "patch")
	text := h.raw(c.Top, "", "diff", "--cached", "--binary", "--full-index", "-M", p.Commit) + "\n"
	if err := os.WriteFile(patch, []byte(strings.TrimSuffix(text, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	// Meanwhile here.
	h.write(h.repo, map[string]string{"later": "later\n"})
	applied, err := h.packer.Workspaces.Apply(t.Context(), job.Patch{Path: patch}, h.repo)
	if err != nil {
		t.Fatal(err)
	}
	if len(applied.Files) != 10 {
		t.Errorf("%d files were applied: %v", len(applied.Files), applied.Files)
	}
	if err := os.Remove(filepath.Join(h.repo, "later")); err != nil {
		t.Errorf("a file that the run knew nothing of: %v", err)
	}
	h.same(c)
	if again, err := h.packer.Workspaces.Apply(t.Context(), job.Patch{Path: patch}, h.repo); err != nil || !again.Already {
		t.Errorf("applied again: %+v, %v", again, err)
	}
	if err := m.Release(t.Context(), c.Top); err != nil {
		t.Error(err)
	}
}

func TestHas(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	h.write(h.repo, map[string]string{"a": "2\n"})
	m, p := h.send(h.repo)
	has, err := m.Has(t.Context())
	if err != nil || !slices.Equal(has, []string{p.Base, p.Commit}) {
		t.Errorf("the mirror has %v, %v, want %s and %s", has, err, p.Base, p.Commit)
	}
	// Another owner's mirror is another.
	other, err := h.node.Open(t.Context(), "bob", p.Identity)
	if err != nil {
		t.Fatal(err)
	}
	if has, err := other.Has(t.Context()); err != nil || len(has) > 0 {
		t.Errorf("the mirror of another has %v, %v", has, err)
	}
	p.Size, p.SHA256, p.Prerequisites = 0, "", nil
	if err := other.Take(t.Context(), p.Parcel, nil); !errors.Is(err, ErrMissing) {
		t.Errorf("taken without a bundle: %v", err)
	}
	if _, err := other.Checkout(t.Context(), p.Start, filepath.Join(h.dir, "there")); !errors.Is(err, ErrMissing) {
		t.Errorf("checked out: %v", err)
	}
}

// TestPrune: what is old goes, unless a checkout uses it.
func TestPrune(t *testing.T) {
	h := newHosts(t)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	h.node.Now = func() time.Time { return now }
	h.begin(map[string]string{"a": "1\n"})
	var sent []*Packed
	var m *Mirror
	for i := range 3 {
		h.write(h.repo, map[string]string{"large": noise(100 << 10), "n": fmt.Sprint(i)})
		var p *Packed
		m, p = h.send(h.repo)
		sent = append(sent, p)
		now = now.Add(time.Hour)
	}
	c, err := m.Checkout(t.Context(), sent[0].Start, filepath.Join(h.dir, "used"))
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(30 * time.Minute)
	if err := m.Prune(t.Context(), Bounds{Age: 2 * time.Hour}); err != nil { // the second is 2 h 30 min old
		t.Fatal(err)
	}
	kept := func() (n []int) {
		for i, p := range sent {
			if _, err := os.Stat(filepath.Join(m.dir, "kept", p.Commit)); err == nil {
				n = append(n, i)
			}
		}
		return n
	}
	if k := kept(); !slices.Equal(k, []int{0, 2}) {
		t.Errorf("kept are %v, want the first and the third", k)
	}
	// However small it is to be, the checkout stays whole.
	if err := m.Prune(t.Context(), Bounds{Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	if k := kept(); !slices.Equal(k, []int{0}) {
		t.Errorf("kept are %v, want the first", k)
	}
	h.git(c.Top, "fsck", "--strict")
	h.git(c.Top, "cat-file", "-e", sent[0].Commit+":large")
	// A checkout whose folder is gone uses nothing.
	if err := os.RemoveAll(c.Top); err != nil {
		t.Fatal(err)
	}
	if err := m.Prune(t.Context(), Bounds{Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	if size := m.size(); size > 10<<10 || len(kept()) > 0 {
		t.Errorf("the mirror has %d bytes and keeps %v", size, kept())
	}
	// It takes all anew.
	_, _, c = h.travel(h.repo, "there")
	h.same(c)
}

// TestPruneDaily: what no workspace needs goes, once a day; what one holds stays as long as
// its folder exists.
func TestPruneDaily(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	now := time.Now()
	h.node.Now = func() time.Time { return now }
	m, first := h.send(h.repo)
	home := filepath.Join(h.dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.Hold(t.Context(), first.Start, home); err != nil {
		t.Fatal(err)
	}
	h.write(h.repo, map[string]string{"a": "2\n"})
	_, second := h.send(h.repo)
	wanted := func(what string, want ...string) {
		t.Helper()
		if err := m.PruneDaily(t.Context(), Bounds{Age: time.Hour}); err != nil {
			t.Fatal(err)
		}
		all, err := m.listKept()
		var got []string
		for _, k := range all {
			got = append(got, k.commit)
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: kept are %.7q, %v, want %.7q", what, got, err, want)
		}
	}
	wanted("all are new", first.Commit, second.Commit)
	now = now.Add(2 * time.Hour)
	wanted("it is the same day", first.Commit, second.Commit)
	now = now.Add(pruneEvery)
	wanted("one is held", first.Commit)
	if err := m.Hold(t.Context(), second.Start, home); !errors.Is(err, ErrMissing) {
		t.Errorf("held what is gone: %v", err)
	}
	if err := os.Remove(home); err != nil {
		t.Fatal(err)
	}
	now = now.Add(pruneEvery)
	wanted("none is held")
}

// TestTogether: several runs use one mirror.
func TestTogether(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	id, err := h.packer.Identify(t.Context(), h.repo)
	if err != nil {
		t.Fatal(err)
	}
	var packed []*Packed
	for i := range 4 {
		h.write(h.repo, map[string]string{"n": fmt.Sprint(i)})
		packed = append(packed, h.pack(h.repo))
	}
	var all sync.WaitGroup
	for i, p := range packed {
		all.Go(func() {
			m, err := h.node.Open(t.Context(), "ann", id)
			if err != nil {
				t.Error(err)
				return
			}
			if err := m.takePacked(t.Context(), p); err != nil {
				t.Error(err)
				return
			}
			c, err := m.Checkout(t.Context(), p.Start, filepath.Join(h.dir, fmt.Sprint("there", i)))
			if err != nil {
				t.Error(err)
				return
			}
			if err := m.Prune(t.Context(), Bounds{Bytes: 1}); err != nil {
				t.Error(err)
			}
			if b, err := os.ReadFile(filepath.Join(c.Top, "n")); err != nil || string(b) != fmt.Sprint(i) {
				t.Errorf("n is %q, %v", b, err)
			}
			if err := m.Release(t.Context(), c.Top); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// remote is a git host behind TLS that wants a password.
func remote(t *testing.T, dir string) (address string, config [][2]string) {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(path)), "git-http-backend")
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != "octo" || pass != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body) // CGI needs its length
		if err != nil {
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=2",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=uploadpack.allowReachableSHA1InWant", "GIT_CONFIG_VALUE_1=true"}, Stderr: io.Discard}).ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, [][2]string{{"http.sslCAInfo", ca}, {"credential.helper", "!f() { echo username=octo; echo password=secret; }; f"}}
}

func TestFetch(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	first := h.git(h.repo, "rev-parse", "HEAD")
	h.git(h.repo, "tag", "-a", "-m", "m", "v1")
	h.write(h.repo, map[string]string{"a": "2\n"})
	second := h.commit("second")
	h.git(h.repo, "branch", "v2")
	h.git(h.dir, "clone", "-q", "--bare", h.repo, "site.git")
	address, config := remote(t, h.dir)
	url := address + "/site.git"
	m, err := h.node.OpenRemote(t.Context(), "ann", Remote{URL: url, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	for base, want := range map[string]string{"": second, "main": second, "v1": first, "v2": second, "refs/tags/v1": first, first: first, second: second} {
		commit, err := m.Fetch(t.Context(), Remote{URL: url, Base: base, Config: config})
		if err != nil || commit != want {
			t.Errorf("base %q is %s, %v, want %s", base, commit, err, want)
		}
	}
	c, err := m.Checkout(t.Context(), Start{Base: second, Commit: second}, filepath.Join(h.dir, "there"))
	if err != nil {
		t.Fatal(err)
	}
	h.same(c)
	for _, c := range []struct {
		remote Remote
		want   string
	}{
		{Remote{URL: url, Base: "missing", Config: config}, `no branch or tag "missing"`},
		{Remote{URL: url, Base: "--upload-pack=x", Config: config}, "cannot be a branch"},
		{Remote{URL: url, Base: "a:b", Config: config}, "cannot be a branch"},
		{Remote{URL: url, Base: "refs/kept/x", Config: config}, "cannot be a branch"},
		{Remote{URL: url, Base: strings.Repeat("a", 40), Config: config}, ""},
		{Remote{URL: url, Config: config[:1]}, ""},
		{Remote{URL: strings.Replace(url, "https", "http", 1), Config: config}, "is not fetched"},
	} {
		if commit, err := m.Fetch(t.Context(), c.remote); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %s, %v, want %q", c.remote, commit, err, c.want)
		}
	}
	for _, address := range []string{
		"file://etc", "/etc/../x", "/proc/self", "ext::sh -c x", "http://example.com/a", "git://example.com/a", "https:///a", "https://octo:secret@example.com/a", "https://secret@example.com/a",
		"ssh://-oProxyCommand=x/a", "-oProxyCommand=x:a", "git@example.com:-a", "https://example.com/a?token=secret", "ssh://git@-x/a", "https://example.com/a b", "ssh://git:secret@example.com/a",
	} {
		if _, err := h.node.OpenRemote(t.Context(), "", Remote{URL: address}); err == nil || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"https://example.com/a/b.git", "ssh://git@example.com:22/a", "git@example.com:a/b.git"} {
		if err := job.ValidRepo(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestFetchAsUser: git logs in as the user's own would, and asks nobody.
func TestFetchAsUser(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	address, config := remote(t, h.dir)
	r := Remote{URL: address + "/repo/.git"}
	if _, err := h.node.OpenRemote(t.Context(), "ann", r); err == nil {
		t.Fatal("fetched without a login")
	}
	own := filepath.Join(h.dir, "gitconfig")
	for _, item := range config {
		h.git(h.dir, "config", "-f", own, item[0], item[1])
	}
	t.Setenv("GIT_CONFIG_GLOBAL", own)
	m, err := h.node.OpenRemote(t.Context(), "ann", r)
	if err != nil {
		t.Fatal(err)
	}
	if commit, err := m.Fetch(t.Context(), r); err != nil || commit != h.git(h.repo, "rev-parse", "HEAD") {
		t.Errorf("fetched %s, %v", commit, err)
	}
}

// TestFetchBound: what a remote sends is bounded, and leaves nothing behind.
func TestFetchBound(t *testing.T) {
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n"})
	first := h.git(h.repo, "rev-parse", "HEAD")
	noise := make([]byte, 3<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	h.write(h.repo, map[string]string{"large": string(noise)})
	h.commit("large")
	r := Remote{URL: h.repo}
	m, err := h.node.OpenRemote(t.Context(), "ann", r)
	if err != nil {
		t.Fatal(err)
	}
	m.Limits.Bundle = 1 << 20
	if commit, err := m.Fetch(t.Context(), r); err == nil || !strings.Contains(err.Error(), "at most 1048576 can travel") {
		t.Errorf("fetched %s, %v", commit, err)
	}
	if n := m.size(); n > 1<<20 {
		t.Errorf("%d bytes are left", n)
	}
	if left, _ := filepath.Glob(filepath.Join(m.dir, incoming+"*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	h.git(h.repo, "tag", "v1", first)
	if commit, err := m.Fetch(t.Context(), Remote{URL: "file://" + h.repo, Base: "v1"}); err != nil || commit != first {
		t.Errorf("fetched %s, %v", commit, err)
	}
}

// TestFetchHostile: objects of a remote are checked.
func TestFetchHostile(t *testing.T) {
	h := newHosts(t)
	s := newStranger(h)
	commit := s.commit(s.tree(entry("40000", ".git", s.tree(entry("100644", "config", s.blob("[core]\n"))))))
	s.git(s.at, "update-ref", "refs/heads/main", commit)
	address, config := remote(t, h.dir)
	url := address + "/stranger/.git"
	m, err := h.node.OpenRemote(t.Context(), "", Remote{URL: url, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Fetch(t.Context(), Remote{URL: url, Config: config}); err == nil || !strings.Contains(err.Error(), "hasDotgit") {
		t.Errorf("fetched: %v", err)
	}
	if has, err := m.Has(t.Context()); err != nil || len(has) > 0 {
		t.Errorf("the mirror has %v, %v", has, err)
	}
}
