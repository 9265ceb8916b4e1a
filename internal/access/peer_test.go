package access

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/daemon"
)

// serveSocket serves a socket's door, and with a TCP door as well if there is a
// guard for it, until the test ends. It returns the path and what was refused.
func serveSocket(t *testing.T, hook func(context.Context, net.Conn) context.Context) (path string, refusals chan Refusal) {
	t.Helper()
	path, refusals = filepath.Join(t.TempDir(), "s.sock"), make(chan Refusal, 10)
	l, err := daemon.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := NewGuard(GuardConfig{Door: Socket, OnRefused: func(_ context.Context, r Refusal) { refusals <- r }})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, &http.Server{Handler: ByDoor(guard, nil, http.HandlerFunc(Me)), ConnContext: hook})
	return path, refusals
}

func serve(t *testing.T, l net.Listener, srv *http.Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(l) //nolint:errcheck // it always ends with one
	}()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
}

// over asks through connections that dial makes.
func over(t *testing.T, dial func(context.Context) (net.Conn, error), url string) *http.Response {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	t.Cleanup(tr.CloseIdleConnections)
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Who connects to the socket is who the kernel says, and may operate.
func TestSocketKnowsItsPeer(t *testing.T) {
	path, _ := serveSocket(t, ConnContext)
	resp := over(t, func(ctx context.Context) (net.Conn, error) { return client.DialSocket(ctx, path) }, "http://scheduler/v1/me")
	name := fmt.Sprintf("uid %d", os.Geteuid())
	if own, err := user.Current(); err == nil {
		name = own.Username
	}
	var p Principal
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p != (Principal{Name: name, Role: Operate, Door: Socket}) {
		t.Errorf("%s: %+v, %v", resp.Status, p, err)
	}
}

// Where nobody asked the kernel, nobody is let in.
func TestSocketWithoutPeersRefuses(t *testing.T) {
	path, refusals := serveSocket(t, nil)
	resp := over(t, func(ctx context.Context) (net.Conn, error) { return client.DialSocket(ctx, path) }, "http://scheduler/v1/me")
	if p := problemIn(t, resp); resp.StatusCode != 403 || p.Name() != forbidden {
		t.Errorf("%+v", p)
	}
	if r := <-refusals; r.Door != Socket || r.Status != 403 || r.Path != "/v1/me" {
		t.Errorf("told %+v", r)
	}
}

func TestPeersThatAreAdmitted(t *testing.T) {
	own := uint32(os.Geteuid())
	for _, tc := range []struct {
		name string
		p    peer
		want bool
	}{
		{"own", peer{uid: own}, true}, {"root", peer{uid: 0}, true}, {"another", peer{uid: own + 1}, false}, {"nobody", peer{uid: 65534}, false}, {"overflow", peer{uid: 1<<32 - 1}, false}, {"unknown", peer{uid: own, err: errNoPeer}, false},
	} {
		who, e := new(users).admit(tc.p)
		if (e == nil) != tc.want || tc.want && (who.Role != Operate || who.Name == "") || !tc.want && (who != (Principal{}) || e.Problem().Status != 403) {
			t.Errorf("%s: %+v, %v", tc.name, who, e)
		}
	}
	if got := new(users).name(4_000_000_000); got != "uid 4000000000" {
		t.Errorf("a user without a name is %q", got)
	}
}

// One server on both doors: who comes over TCP is not taken for who comes by the
// socket, and the other way round.
func TestDoorsAreToldApart(t *testing.T) {
	f := newFixture(t, Settings{})
	inside, err := NewGuard(GuardConfig{Door: Socket})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	unix, err := daemon.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := Listen(Config{Addr: "127.0.0.1:0", Tokens: f.tokens})
	if err != nil {
		t.Fatal(err)
	}
	at := tcp.Addr().String()
	serve(t, unix, &http.Server{Handler: ByDoor(inside, f.guard, http.HandlerFunc(Me)), ConnContext: ConnContext})
	serve(t, tcp, &http.Server{Handler: ByDoor(inside, f.guard, http.HandlerFunc(Me)), ConnContext: ConnContext})
	dial := func(network, addr string) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) }
	}
	for _, tc := range []struct {
		network, addr, host string
		want                int
	}{
		{"unix", path, "scheduler", 200}, {"unix", path, at, 421}, {"tcp", at, at, 401}, {"tcp", at, "scheduler", 421}, {"tcp", at, "localhost", 421},
	} {
		if resp := over(t, dial(tc.network, tc.addr), "http://"+tc.host+"/v1/me"); resp.StatusCode != tc.want {
			t.Errorf("%s as %s: %s, want %d", tc.network, tc.host, resp.Status, tc.want)
		}
	}
}

// A user whom the host does not know by name is somebody all the same.
func TestUserName(t *testing.T) {
	t.Setenv("USER", "somebody-else")
	if got := UserName(4123123); got != "uid 4123123" {
		t.Errorf("a user without a name is %q", got)
	}
	if own, err := user.LookupId("0"); err == nil && UserName(0) != own.Username {
		t.Errorf("user 0 is %q, want %q", UserName(0), own.Username)
	}
}
