package gitproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	refs          = "/info/refs?service=git-upload-pack"
	advertisement = "application/x-git-upload-pack-advertisement"
)

// TestRedirect: where a host leads is checked, and gets a credential of its own.
func TestRedirect(t *testing.T) {
	a, b := newHost(t), newHost(t)
	a.repository("octo/new")
	b.repository("octo/moved")
	const tokenB = "token-of-b-0123456789"
	b.wants(tokenB)
	r := newRun(t, Config{
		Allow: []Repo{{Host: a.name, Path: "octo/*"}, {Host: b.name, Path: "octo/moved"}},
		Credentials: func(_ context.Context, host, _ string) (string, string, error) {
			return user, map[string]string{a.name: token, b.name: tokenB}[host], nil
		},
	}, a)
	lead := func(to string) {
		a.answer(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/octo/old") {
				return false
			}
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusMovedPermanently)
			return true
		})
	}
	old := "https://" + a.name + "/octo/old"
	for i, to := range []string{"https://" + a.name + "/octo/new", "/octo/new", "https://" + b.name + "/octo/moved.git"} {
		lead(to + refs)
		r.mustGit("clone", "-q", old, fmt.Sprint("clone-", i))
	}
	for to, want := range map[string]string{
		"https://" + b.name + "/octo/private" + refs:                                  "may not use the git repository octo/private",
		"http://" + a.name + "/octo/new" + refs:                                       "does not lead to https",
		"https://x:y@" + a.name + "/octo/new" + refs:                                  "does not lead to https",
		"https://" + a.name + "/octo/" + token + refs:                                 "holds the credential",
		"https://" + a.name + "/login?to=/octo/old":                                   "smart HTTP protocol",
		"https://" + a.name + "/octo/new/info/refs?service=git-receive-pack":          "another service",
		"https://169.254.169.254/latest/meta-data/info/refs?service=git-upload-pack":  "may not use the git repository",
		"https://" + a.name + "/octo/%2e%2e/secret/info/refs?service=git-upload-pack": "not the path of a git repository",
	} {
		lead(to)
		r.refused(want, "ls-remote", old)
	}
	if strings.Contains(b.authorizations(), credentialHeader(user, token)) {
		t.Error("the second host was shown the first one's credential")
	}
	r.knowsNothing()
}

func credentialHeader(user, pass string) string {
	req, _ := http.NewRequest(http.MethodGet, "https://x", nil)
	req.SetBasicAuth(user, pass)
	return req.Header.Get("Authorization")
}

// TestEcho: a host that says the credential back, in whatever part of its answer.
func TestEcho(t *testing.T) {
	h := newHost(t)
	r := newRun(t, Config{Allow: []Repo{{Host: h.name, Path: "octo/*"}}}, h)
	all := func(r *http.Request) string {
		return fmt.Sprintf("you are %s with %s, as %s", user, token, r.Header.Get("Authorization"))
	}
	packet := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	cases := map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"error body": {func(w http.ResponseWriter, r *http.Request) { http.Error(w, all(r), http.StatusTeapot) }, "you are octo with [redacted"},
		"headers": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Echo", all(r))
			w.Header().Set("Set-Cookie", "t="+token)
			w.Header().Set("WWW-Authenticate", "Basic realm="+token)
			http.Error(w, "no", http.StatusUnauthorized)
		}, "refused the scheduler's credential"},
		"long error body": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, strings.Repeat("x", 4090)+token, http.StatusForbidden)
		}, "403 Forbidden"},
		"HTML": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, all(r))
		}, "404 Not Found"},
		"reference's name": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", advertisement)
			_, _ = io.WriteString(w, packet("# service=git-upload-pack\n")+"0000"+
				packet(strings.Repeat("a", 40)+" refs/heads/"+token[:20]))
			w.(http.Flusher).Flush() // in two pieces
			_, _ = io.WriteString(w, token[20:])
		}, ""},
		"gzip": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", advertisement)
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, all(r))
			_ = z.Close()
		}, "an encoding that was not asked for"},
		"dumb protocol": {func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, all(r)) }, "does not speak git's smart HTTP protocol"},
		"status of nobody": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(299)
			_, _ = io.WriteString(w, all(r))
		}, "299"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.answer(func(w http.ResponseWriter, r *http.Request) bool { c.answer(w, r); return true })
			out, err := r.git("ls-remote", "https://"+h.name+"/octo/site")
			if c.want != "" && (err == nil || !strings.Contains(out, c.want)) {
				t.Errorf("%v, want %q:\n%s", err, c.want, out)
			}
			resp, body := r.get("/git/" + h.name + "/octo/site" + refs)
			var whole bytes.Buffer
			_ = resp.Header.Write(&whole)
			whole.WriteString(body)
			for _, s := range []string{token, strings.TrimPrefix(credentialHeader(user, token), "Basic ")} {
				if strings.Contains(whole.String(), s) {
					t.Errorf("the run sees %s:\n%s", s, &whole)
				}
			}
			if name == "reference's name" && !strings.Contains(body, "refs/heads/"+strings.Repeat("*", len(token))) {
				t.Errorf("want asterisks: %s", body)
			}
		})
	}
	r.knowsNothing()
}

// TestLimits: what a run or a host sends too much of ends the request.
func TestLimits(t *testing.T) {
	h := newHost(t)
	h.repository("octo/site")
	allow := []Repo{{Host: h.name, Path: "octo/site", Write: true}}
	flood := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", advertisement)
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return true
			}
		}
	}
	address := "https://" + h.name + "/octo/site"

	t.Run("push", func(t *testing.T) {
		r := newRun(t, Config{Allow: allow, Limits: Limits{Push: 100}}, h)
		r.mustGit("clone", "-q", address)
		r.mustGit("-C", "site", "commit", "-q", "--allow-empty", "-m", strings.Repeat("long ", 1000))
		r.refused("413", "-C", "site", "push", "-q", "origin", "HEAD:refs/heads/large")
		r.refused("413", "-C", "site", "-c", "http.postBuffer=200", "push", "-q", "origin", "HEAD:refs/heads/large")
		if refs := outside(t, h.dir+"/octo/site.git", "branch", "--list", "large"); refs != "" {
			t.Errorf("it was pushed: %s", refs)
		}
	})
	t.Run("answer", func(t *testing.T) {
		h.answer(flood)
		defer h.answer(nil)
		r := newRun(t, Config{Allow: allow, Limits: Limits{Response: 1 << 20}}, h)
		if _, body := r.get("/git/" + h.name + "/octo/site" + refs); len(body) > 1<<20+100 || !strings.Contains(body, "unexpected EOF") {
			t.Errorf("%d bytes, which end with %.100q", len(body), body[max(0, len(body)-100):])
		}
	})
	t.Run("time", func(t *testing.T) {
		h.answer(func(w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
		defer h.answer(nil)
		r := newRun(t, Config{Allow: allow, Limits: Limits{Time: 50 * time.Millisecond}}, h)
		if resp, err := tryGet(r, "/git/"+h.name+"/octo/site"+refs); err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("a host that never answers: %s", resp.Status)
		}
	})
	t.Run("at once", func(t *testing.T) {
		held, free := make(chan struct{}), make(chan struct{})
		h.answer(func(w http.ResponseWriter, r *http.Request) bool { held <- struct{}{}; <-free; return false })
		r := newRun(t, Config{Allow: allow, Limits: Limits{Requests: 1}}, h)
		done := make(chan int)
		go func() {
			resp, err := tryGet(r, "/git/"+h.name+"/octo/site"+refs)
			if err != nil {
				done <- 0
				return
			}
			done <- resp.StatusCode
		}()
		<-held
		h.answer(nil)
		if resp, _ := r.get("/git/" + h.name + "/octo/site" + refs); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a second request: %s", resp.Status)
		}
		close(free)
		if status := <-done; status != http.StatusOK {
			t.Errorf("the first request: %d", status)
		}
		if resp, _ := r.get("/git/" + h.name + "/octo/site" + refs); resp.StatusCode != http.StatusOK {
			t.Errorf("a third request: %s", resp.Status)
		}
	})
}

func tryGet(r *run, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.endpoint+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+runKey)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return resp, err
}
