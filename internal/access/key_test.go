package access

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/proc"
)

// keyed is a socket's door that needs a key.
type keyed struct {
	path, file, secret string
	key                *Key
	refusals           chan Refusal
}

func serveKeyed(t *testing.T, origin func(proc.Proc) Origin, hook func(context.Context, net.Conn) context.Context) *keyed {
	t.Helper()
	dir := t.TempDir()
	k := &keyed{path: filepath.Join(dir, "s.sock"), file: filepath.Join(dir, client.KeyFile), refusals: make(chan Refusal, 10)}
	var err error
	if k.key, err = OpenKey(k.file); err != nil {
		t.Fatal(err)
	}
	k.secret = k.read(t)
	guard, err := NewGuard(GuardConfig{Door: Socket, Key: k.key, Origin: origin, OnRefused: func(_ context.Context, r Refusal) { k.refusals <- r }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := daemon.ListenSocket(k.path)
	if err != nil {
		t.Fatal(err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/v1/me", Me)
	for _, path := range []string{"/healthz", "/metrics"} {
		routes.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if p, ok := From(r.Context()); !ok || p.Role != Read {
				t.Errorf("%s without a key: %+v", path, p)
			}
		})
	}
	serve(t, l, &http.Server{Handler: ByDoor(guard, nil, routes), ConnContext: hook})
	return k
}

func (k *keyed) read(t *testing.T) string {
	t.Helper()
	info, err := os.Stat(k.file)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the key's file: %v, %v", info, err)
	}
	text, err := os.ReadFile(k.file)
	secret, ok := client.ParseKey(string(text))
	if err != nil || !ok || len(secret) != secretLength || string(text) != client.KeyHeader+": "+secret+"\n" {
		t.Fatalf("the key's file holds %q, %v", text, err)
	}
	return secret
}

// ask asks with these keys in the header.
func (k *keyed) ask(t *testing.T, path string, keys ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://scheduler"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header[client.KeyHeader] = keys
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return client.DialSocket(ctx, k.path) }}
	t.Cleanup(tr.CloseIdleConnections)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Only health and metrics are told without the key, and these to look at.
func TestSocketNeedsTheKey(t *testing.T) {
	k := serveKeyed(t, nil, ConnContext)
	for _, keys := range [][]string{nil, {""}, {"none"}, {strings.Repeat("A", secretLength)}, {k.secret, k.secret}} {
		resp := k.ask(t, "/v1/me", keys...)
		if p := problemIn(t, resp); resp.StatusCode != 401 || p.Name() != keyRequired || !strings.Contains(p.Detail, k.file) || !strings.Contains(p.Detail, "docs/security.md") {
			t.Errorf("keys %q: %+v", keys, p)
		}
		if r := <-k.refusals; r.Status != 401 || r.Name != "" {
			t.Errorf("told %+v", r)
		}
		for _, path := range []string{"/healthz", "/metrics"} {
			if resp := k.ask(t, path, keys...); resp.StatusCode != 200 {
				t.Errorf("%s with the keys %q: %s", path, keys, resp.Status)
			}
		}
	}
	if resp := k.ask(t, "/v1/me", k.secret); resp.StatusCode != 200 {
		t.Errorf("with the key: %s", resp.Status)
	}
	// A client of package client finds it, and is told what is missing if there is none.
	if _, err := client.New(k.path).Status(t.Context()); strings.Contains(err.Error(), "key") {
		t.Errorf("by the client: %v", err)
	}
}

// A key that is lost, damaged or was open to others is replaced, and counts no more.
func TestKeyIsReplaced(t *testing.T) {
	k := serveKeyed(t, nil, ConnContext)
	for what, spoil := range map[string]func() error{
		"lost":    func() error { return os.Remove(k.file) },
		"open":    func() error { return os.Chmod(k.file, 0o644) },
		"damaged": func() error { return os.WriteFile(k.file, []byte("Other: header\n"), 0o600) },
	} {
		old := k.read(t)
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if resp := k.ask(t, "/v1/me", old); resp.StatusCode != 401 {
			t.Errorf("%s: the key before is answered %s", what, resp.Status)
		}
		if resp := k.ask(t, "/v1/me", k.read(t)); resp.StatusCode != 200 {
			t.Errorf("%s: the new key is answered %s", what, resp.Status)
		}
	}
	again, err := OpenKey(k.file)
	if err != nil || !again.opens(k.read(t)) {
		t.Errorf("opened again it is another: %v", err)
	}
}

// Who counts as a run is refused whatever it sends, and is nobody's name.
func TestSocketRefusesRuns(t *testing.T) {
	k := serveKeyed(t, func(p proc.Proc) Origin {
		if p.Pid != os.Getpid() || p.Start == 0 {
			t.Errorf("judged %+v", p)
		}
		return Origin{Run: "it descends from a core"}
	}, ConnContext)
	for _, path := range []string{"/v1/me", "/metrics"} {
		resp := k.ask(t, path, k.secret)
		if p := problemIn(t, resp); resp.StatusCode != 403 || p.Name() != runMayNotAsk {
			t.Errorf("%s: %+v", path, p)
		}
		if r := <-k.refusals; r.Status != 403 || r.Name != agentName || r.Role != agentRole || !strings.Contains(r.Why, "descends from a core") {
			t.Errorf("told %+v", r)
		}
	}
}

// A process of another pid namespace, and one that has ended, cannot be judged.
func TestSocketOfPeersThatCannotBeJudged(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    peer
		role Role
	}{
		{"elsewhere", peer{elsewhere: true}, Submit}, {"gone", peer{gone: true}, ""},
	} {
		k := serveKeyed(t, func(proc.Proc) Origin { t.Error("judged"); return Origin{} }, func(ctx context.Context, _ net.Conn) context.Context {
			c := &caller{peer: tc.p}
			c.uid = uint32(os.Geteuid())
			return context.WithValue(ctx, peerKey{}, c)
		})
		resp := k.ask(t, "/v1/me", k.secret)
		if tc.role == "" {
			if p := problemIn(t, resp); p.Name() != runMayNotAsk {
				t.Errorf("%s: %+v", tc.name, p)
			}
			continue
		}
		who := whoIn(t, resp)
		if who.Role != tc.role || who.Name != "key of "+UserName(os.Geteuid()) {
			t.Errorf("%s: %s, %+v", tc.name, resp.Status, who)
		}
		if resp := k.ask(t, "/v1/me"); resp.StatusCode != 401 {
			t.Errorf("%s without the key: %s", tc.name, resp.Status)
		}
	}
}

// The command line of the version before sends no header at all. One that sends a
// wrong key is not it.
func TestSocketKnowsTheVersionBefore(t *testing.T) {
	before := true
	k := serveKeyed(t, func(proc.Proc) Origin { return Origin{Before: func() bool { return before }} }, ConnContext)
	if who := whoIn(t, k.ask(t, "/v1/me")); who.Role != Operate {
		t.Errorf("%+v", who)
	}
	if resp := k.ask(t, "/v1/me", "none"); resp.StatusCode != 401 {
		t.Errorf("with a wrong key: %s", resp.Status)
	}
	before = false
	if resp := k.ask(t, "/v1/me"); resp.StatusCode != 401 {
		t.Errorf("another program: %s", resp.Status)
	}
}

func whoIn(t *testing.T, resp *http.Response) (p Principal) {
	t.Helper()
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 200 {
		t.Errorf("%s: %v", resp.Status, err)
	}
	return p
}
