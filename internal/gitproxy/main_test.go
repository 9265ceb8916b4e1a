package gitproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	runKey = "run-key-0123456789"
	user   = "octo"
	token  = "ghp_4Yq0Z7hJ2kLmN8pRsT1vWxYz3aBcDeFgHiJk"
)

// host is a git host behind TLS: git http-backend, with a user and a token.
type host struct {
	*httptest.Server
	t    *testing.T
	name string // as in an address, with the port
	dir  string // of the bare repositories

	mu    sync.Mutex
	token string                                                  // that it wants to see
	first func(w http.ResponseWriter, r *http.Request) (end bool) // answers before git does
	seen  []string                                                // the Authorization headers
}

func newHost(t *testing.T) *host {
	t.Helper()
	execPath, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(execPath)), "git-http-backend")
	h := &host{t: t, dir: t.TempDir(), token: token}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		want, first := h.token, h.first
		h.seen = append(h.seen, r.Header.Get("Authorization"))
		h.mu.Unlock()
		if first != nil && first(w, r) {
			return
		}
		if _, pass, _ := r.BasicAuth(); pass != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(r.Body) // CGI needs its length
		if err != nil {
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + h.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + user}, Stderr: io.Discard}).ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	h.name = strings.TrimPrefix(h.URL, "https://")
	return h
}

func (h *host) answer(first func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first = first
}

// wants sets the token that the host wants to see.
func (h *host) wants(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token = token
}

// authorizations returns what clients have shown.
func (h *host) authorizations() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.seen, "\n")
}

// repository makes one with a commit, owner/name.
func (h *host) repository(name string) {
	h.t.Helper()
	work := h.t.TempDir()
	outside(h.t, work, "init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(work, "README"), []byte(name+"\n"), 0o644); err != nil {
		h.t.Fatal(err)
	}
	outside(h.t, work, "add", ".")
	outside(h.t, work, "commit", "-q", "-m", "first")
	outside(h.t, work, "clone", "-q", "--bare", ".", filepath.Join(h.dir, name+".git"))
	outside(h.t, filepath.Join(h.dir, name+".git"), "config", "http.receivepack", "true")
}

// outside runs git as the host's owner.
func outside(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// run is a run with git in it, and the proxy that it is given.
type run struct {
	t        *testing.T
	endpoint string
	dir      string // everything that it can write
	work     string
	env      []string

	mu      sync.Mutex
	records []Access
}

func newRun(t *testing.T, c Config, hosts ...*host) *run {
	t.Helper()
	r := &run{t: t, dir: t.TempDir()}
	r.work = filepath.Join(r.dir, "work")
	home := filepath.Join(r.dir, "home")
	for _, dir := range []string{r.work, home} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c.Key = runKey
	if c.Credentials == nil {
		c.Credentials = func(context.Context, string, string) (string, string, error) { return user, token, nil }
	}
	c.Record = func(a Access) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.records = append(r.records, a)
	}
	c.Transport = hosts[0].Client().Transport // all test hosts have the same certificate
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	r.endpoint = s.URL
	r.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		// All that git sends and receives, as it is.
		"GIT_TRACE_CURL=" + filepath.Join(r.dir, "trace"), "GIT_TRACE_PACKET=" + filepath.Join(r.dir, "packets"), "GIT_TRACE_REDACT=0",
		"http_proxy=http://127.0.0.1:9", // that of the run; the endpoint is not behind it
	}, Environ(GitConfig(c.Allow, s.URL, runKey))...)
	return r
}

func (r *run) git(args ...string) (string, error) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Bot", "-c", "user.email=bot@example.com"}, args...)...)
	cmd.Dir, cmd.Env = r.work, r.env
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), token) {
		r.t.Errorf("git %v prints the token:\n%s", args, out)
	}
	return string(out), err
}

func (r *run) mustGit(args ...string) string {
	r.t.Helper()
	out, err := r.git(args...)
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

// refused wants git to fail with a text.
func (r *run) refused(want string, args ...string) {
	r.t.Helper()
	if out, err := r.git(args...); err == nil || !strings.Contains(out, want) {
		r.t.Errorf("git %v: %v, want a failure that says %q:\n%s", args, err, want, out)
	}
}

// get asks the proxy as any program in the run can.
func (r *run) get(path string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.endpoint+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+runKey)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, " "+err.Error()...)
	}
	return resp, string(b)
}

// knowsNothing looks for the token in all that the run has seen and written.
func (r *run) knowsNothing() {
	r.t.Helper()
	secrets, _ := credential{user, token}.secrets()
	looked := 0
	err := filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		for _, s := range secrets {
			if bytes.Contains(b, s) {
				r.t.Errorf("%s holds %s", path, s)
			}
		}
		return nil
	})
	if err != nil || looked < 2 {
		r.t.Errorf("looked at %d files: %v", looked, err)
	}
	if env := strings.Join(r.env, "\n"); strings.Contains(env, token) {
		r.t.Errorf("the environment holds the token:\n%s", env)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.records {
		if a.Err != nil && strings.Contains(a.Err.Error(), token) {
			r.t.Errorf("the record holds the token: %v", a.Err)
		}
	}
}

func (r *run) recorded(want func(Access) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.records {
		if want(a) {
			return true
		}
	}
	return false
}

var errNone = errors.New("no credential is stored")
