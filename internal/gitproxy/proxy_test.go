package gitproxy

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestGit is a day of the real client in a run.
func TestGit(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"octo/site", "octo/library", "other/private"} {
		h.repository(name)
	}
	r := newRun(t, Config{Allow: []Repo{
		{Host: h.name, Path: "octo/site", Write: true},
		{Host: h.name, Path: "octo/*"},
	}}, h)

	r.mustGit("clone", "-q", "https://"+h.name+"/octo/site.git")
	r.mustGit("clone", "-q", "https://"+h.name+"/octo/library")
	if url := r.mustGit("-C", "site", "config", "remote.origin.url"); strings.TrimSpace(url) != "https://"+h.name+"/octo/site.git" {
		t.Errorf("the remote is %s, want the host's own address", url)
	}
	blob := make([]byte, 3<<20) // more than http.postBuffer: sent in chunks
	_, _ = rand.Read(blob)
	if err := os.WriteFile(filepath.Join(r.work, "site", "blob"), blob, 0o644); err != nil {
		t.Fatal(err)
	}
	r.mustGit("-C", "site", "add", ".")
	r.mustGit("-C", "site", "commit", "-q", "-m", "a blob")
	r.mustGit("-C", "site", "push", "-q", "origin", "HEAD:refs/heads/work")
	if have, want := outside(t, filepath.Join(h.dir, "octo/site.git"), "rev-parse", "work"), strings.TrimSpace(r.mustGit("-C", "site", "rev-parse", "HEAD")); have != want {
		t.Errorf("the host has %s, want %s", have, want)
	}
	outside(t, filepath.Join(h.dir, "octo/library.git"), "branch", "new", "main")
	r.mustGit("-C", "library", "fetch", "-q")
	r.mustGit("-C", "library", "rev-parse", "refs/remotes/origin/new")

	r.refused("may read octo/library", "-C", "library", "push", "-q", "origin", "HEAD:refs/heads/mine")
	r.refused("may not use the git repository other/private", "clone", r.endpoint+"/git/"+h.name+"/other/private")
	r.refused("may not use the git repository octo/deep/er", "clone", "https://"+h.name+"/octo/deep/er")

	if heads := outside(t, filepath.Join(h.dir, "octo/library.git"), "branch", "--list", "mine"); heads != "" {
		t.Errorf("the push to a repository for reading arrived: %s", heads)
	}
	for what, want := range map[string]func(Access) bool{
		"the push": func(a Access) bool {
			return a.Path == "octo/site.git" && a.Write && a.Allowed && a.Sent > 3<<20 && a.Status == 200
		},
		"the fetch":        func(a Access) bool { return a.Path == "octo/library" && !a.Write && a.Allowed && a.Received > 0 },
		"the refused push": func(a Access) bool { return a.Write && !a.Allowed && a.Status == http.StatusForbidden && a.Err != nil },
	} {
		if !r.recorded(want) {
			t.Errorf("%s is not recorded: %+v", what, r.records)
		}
	}
	if !strings.Contains(h.authorizations(), "Basic ") || strings.Contains(h.authorizations(), runKey) {
		t.Errorf("the host saw %s", h.authorizations())
	}
	r.knowsNothing()
}

// TestKey: another program on the same loopback gets nothing.
func TestKey(t *testing.T) {
	h := newHost(t)
	h.repository("octo/site")
	r := newRun(t, Config{Allow: []Repo{{Host: h.name, Path: "octo/site"}}}, h)
	for _, key := range []string{"", "Bearer ", "Bearer wrong", runKey} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, r.endpoint+"/git/"+h.name+"/octo/site/info/refs?service=git-upload-pack", nil)
		req.Header.Set("Authorization", key)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("key %q: %s", key, resp.Status)
		}
	}
	if seen := h.authorizations(); seen != "" {
		t.Errorf("the host was asked: %s", seen)
	}
}

func TestCredential(t *testing.T) {
	h := newHost(t)
	h.repository("octo/site")
	answers := []string{"expired-0123456789", token}
	allow := []Repo{{Host: h.name, Path: "octo/site"}}
	address := "https://" + h.name + "/octo/site"

	t.Run("renewed", func(t *testing.T) {
		var asked atomic.Int64
		r := newRun(t, Config{Allow: allow, Credentials: func(_ context.Context, host, path string) (string, string, error) {
			if host != h.name || path != "octo/site" {
				t.Errorf("asked for %s of %s", path, host)
			}
			return user, answers[min(int(asked.Add(1)), len(answers))-1], nil
		}}, h)
		h.wants(answers[0])
		r.mustGit("ls-remote", address)
		h.wants(answers[1])
		r.mustGit("ls-remote", address)
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}
	})
	t.Run("wrong", func(t *testing.T) {
		r := newRun(t, Config{Allow: allow, Credentials: func(context.Context, string, string) (string, string, error) { return user, "a-wrong-token", nil }}, h)
		r.refused("refused the scheduler's credential", "ls-remote", address)
	})
	t.Run("none", func(t *testing.T) {
		r := newRun(t, Config{Allow: allow, Credentials: func(context.Context, string, string) (string, string, error) { return "", "", nil }}, h)
		r.refused("wants a credential for octo/site", "ls-remote", address)
	})
	t.Run("failed", func(t *testing.T) {
		r := newRun(t, Config{Allow: allow, Credentials: func(context.Context, string, string) (string, string, error) { return "", "", errNone }}, h)
		r.refused("could not be asked", "ls-remote", address)
		if !r.recorded(func(a Access) bool { return a.Err != nil && strings.Contains(a.Err.Error(), errNone.Error()) }) {
			t.Errorf("recorded: %+v", r.records)
		}
		if out, _ := r.git("ls-remote", address); strings.Contains(out, errNone.Error()) {
			t.Errorf("the run is told of the scheduler's error: %s", out)
		}
	})
}
