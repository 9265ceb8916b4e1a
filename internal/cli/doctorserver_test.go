package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/ca"
	"github.com/agentsched/agentsched/internal/node"
)

// farScheduler answers as a scheduler does, as far as the doctor asks, with a certificate of an authority in dir.
func farScheduler(t *testing.T, dir string, protocols string) string {
	t.Helper()
	if _, err := ca.Init(dir, ca.DefaultLife, time.Now()); err != nil {
		t.Fatal(err)
	}
	by, err := ca.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := by.Issue("a", []string{"localhost", "127.0.0.1"}, ca.DefaultLife/2, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(made.CertFile, made.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	problem := func(w http.ResponseWriter, status int, kind string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type": "urn:agentsched:problem:%s", "status": %d, "detail": "it is %s"}`, kind, status, kind)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok": true}`) })
	mux.HandleFunc("/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"info": {"title": "agentsched", "version": "0.0.1"}, "paths": {"/v1/node": {}}}`)
	})
	mux.HandleFunc("/v1/me", func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer person":
			fmt.Fprint(w, `{"name": "ann", "role": "operate", "door": "tcp"}`)
		case "Bearer node":
			problem(w, http.StatusForbidden, "forbidden")
		default:
			problem(w, http.StatusUnauthorized, "unauthenticated")
		}
	})
	mux.HandleFunc("/v1/node", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			t.Error("the doctor asks for a session, which ends that of a node")
		}
		w.Header().Set(node.HeaderProtocols, protocols)
		http.Error(w, "channels", http.StatusBadRequest)
	})
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// Each step of the way to a scheduler is told, the first that fails is the last one, and what mends it is said.
func TestDoctorOfServer(t *testing.T) {
	dir, state := filepath.Join(t.TempDir(), "ca"), filepath.Join(t.TempDir(), "state")
	address := farScheduler(t, dir, fmt.Sprintf("%d-%d", node.MinProtocol, node.MaxProtocol+1))
	other := farScheduler(t, filepath.Join(t.TempDir(), "ca"), fmt.Sprintf("%d-%d", node.MaxProtocol+1, node.MaxProtocol+2))
	trust := filepath.Join(dir, "ca.crt")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, x := range []struct {
		name, server, token, ca string
		code                    int
		last, status, note      string
	}{
		{"a person", address, "person", trust, exitOK, "token", "ok", "ann may operate"},
		{"a node", address, "node", trust, exitOK, "node", "ok", "would be taken"},
		{"no token", address, "", trust, exitOK, "token", "warning", "--token-file"},
		{"a wrong token", address, "wrong", trust, exitFailed, "token", "error", "unauthenticated"},
		{"an unknown authority", address, "person", "", exitFailed, "certificate", "error", "--ca"},
		{"another authority", other, "person", trust, exitFailed, "certificate", "error", "nobody trusted"},
		{"nobody listens", closed.URL, "person", "", exitFailed, "connection", "error", "api.listen"},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), "person", "", exitFailed, "certificate", "error", "api.tls"},
		{"no scheduler", plain.URL, "person", "", exitFailed, "scheduler", "error", "404"},
	} {
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte(x.token), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"doctor", "--json", "--server", x.server, "--ca", x.ca}
		if x.token != "" {
			args = append(args, "--token-file", token)
		}
		m := newTestMain(t, nil)
		m.local.stateDir = state
		code, said := sayIn(t, m, args...)
		var list []finding
		if err := json.NewDecoder(strings.NewReader(said)).Decode(&list); err != nil || len(list) == 0 {
			t.Errorf("%s: %v: %s", x.name, err, said)
			continue
		}
		if f := list[len(list)-1]; code != x.code || f.What != x.last || f.Status != x.status || !strings.Contains(f.Note, x.note) {
			t.Errorf("%s: exit code %d and %+v, want %d and %s %s: %s", x.name, code, f, x.code, x.last, x.status, x.note)
		}
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("a state directory was made")
	}
}

// A certificate that is not for the host, has ended or ends soon is told with what mends it.
func TestCertificateIsExamined(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	if _, err := ca.Init(dir, ca.DefaultAuthorityLife, now); err != nil {
		t.Fatal(err)
	}
	by, err := ca.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	made, err := by.Issue("a", []string{"a.example.com"}, 60*24*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(made.CertFile, made.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := trusted(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	state := &tls.ConnectionState{Version: tls.VersionTLS13, PeerCertificates: []*x509.Certificate{pair.Leaf}}
	for _, x := range []struct {
		host         string
		after        time.Duration
		status, note string
	}{
		{"a.example.com", 0, "ok", "for a.example.com, by agentsched CA"},
		{"a.example.com", 40 * 24 * time.Hour, "warning", "ends in 19 days: renew it"},
		{"a.example.com", 61 * 24 * time.Hour, "error", "is not valid at"},
		{"b.example.com", 0, "error", "--host b.example.com"},
	} {
		f := examineCertificate(state, &url.URL{Scheme: "https", Host: x.host}, trust.RootCAs, now.Add(x.after))
		if f.Status != x.status || !strings.Contains(f.Note, x.note) {
			t.Errorf("%s after %s: %+v, want %s: %s", x.host, x.after, f, x.status, x.note)
		}
	}
}

// Clocks are compared by an answer's date; versions of the nodes' protocol by its header.
func TestClockAndNodeAreExamined(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for date, want := range map[string]string{now.Format(http.TimeFormat): "ok", now.Add(-time.Hour).Format(http.TimeFormat): "warning", "": "warning"} {
		if f := examineClock(date, now); f.Status != want {
			t.Errorf("date %q: %+v, want %s", date, f, want)
		}
	}
	for protocols, want := range map[string]string{
		fmt.Sprintf("%d-%d", node.MinProtocol, node.MaxProtocol): "ok", fmt.Sprintf("%d-%d", node.MaxProtocol+1, node.MaxProtocol+2): "error", "x": "error", "": "warning",
	} {
		if f := examineNode(&http.Response{Header: http.Header{node.HeaderProtocols: {protocols}}}, &api.Problem{Status: http.StatusBadRequest}); f.Status != want {
			t.Errorf("protocols %q: %+v, want %s", protocols, f, want)
		}
	}
}
