package e2e

// What the tests of requests share: requests as they go over the wire, tokens,
// and listeners of event streams.

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// door is a way to a scheduler, without what package client makes of it.
type door struct {
	t    *testing.T
	base string
	http *http.Client
	key  string // path of the file with the key of the socket; "" at another door
}

// socketDoor is the way by the unix socket.
func (b *bench) socketDoor() *door {
	socket := filepath.Join(b.state, "scheduler.sock")
	d := b.doorTo("http://scheduler", func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	})
	d.key = filepath.Join(b.state, client.KeyFile)
	return d
}

// tcpDoor is the way by TCP, from a local address; "" is any.
func (b *bench) tcpDoor(base, from string) *door {
	return b.doorTo(base, (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext)
}

func (b *bench) doorTo(base string, dial func(context.Context, string, string) (net.Conn, error)) *door {
	tr := &http.Transport{DialContext: dial}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &door{t: b.t, base: base, http: &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// reply is what was answered. The body of a stream is left out.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with a body, none if it is "", and headers, each a name
// followed by its value.
func (d *door) ask(method, path, body string, headers ...string) reply {
	d.t.Helper()
	r, err := d.try(d.t.Context(), method, path, body, headers...)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// askWithin is how long a request may take.
const askWithin = time.Minute

func (d *door) try(ctx context.Context, method, path, body string, headers ...string) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if d.key != "" {
		req.Header.Set(client.KeyHeader, keyIn(d.t, d.key))
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return r, err
		}
		r.body = string(text)
	}
	return r, nil
}

// keyIn returns the key in the file at path.
func keyIn(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	key, ok := client.ParseKey(string(text))
	if err != nil || !ok {
		t.Errorf("no key in %s: %v", path, err)
	}
	return key
}

// problem wants the reply to be a problem as RFC 9457 has it, and returns its name.
func (r *reply) problem(t *testing.T, what string) string {
	t.Helper()
	var p api.Problem
	err := json.Unmarshal([]byte(r.body), &p)
	if typ := r.header.Get("Content-Type"); err != nil || typ != "application/problem+json" || p.Name() == "" || p.Title == "" || p.Status != r.status || p.Detail == "" {
		t.Errorf("%s: %d is answered as %q, %v, want a problem with type, title, status and detail:\n%s", what, r.status, typ, err, r.body)
	}
	return p.Name()
}

// token makes a token of a role.
func (b *bench) token(name, role string, more ...string) string {
	b.t.Helper()
	out, errs, code := b.command(append([]string{"token", "create", name, "--role", role}, more...)...)
	if code != 0 {
		b.fatalf("token create %s: exit code %d\n%s", name, code, errs)
	}
	return strings.TrimSpace(out)
}

// listenTCP has the next scheduler listen on any port of this host, without a bound
// on requests. base says where, once it is up.
func (b *bench) listenTCP() {
	b.config["api"] = obj{"listen": "127.0.0.1:0", "rate": obj{"per_second": 1_000_000, "burst": 1_000_000}}
}

// link asks for a link to the dashboard, which tells where the scheduler listens.
func (b *bench) link() (base string, link *url.URL) {
	b.t.Helper()
	l, err := b.client().UILink(b.t.Context(), "")
	if err != nil {
		b.fatalf("a link to the dashboard: %v", err)
	}
	if link, err = url.Parse(l.URL); err != nil {
		b.fatalf("the link: %v", err)
	}
	return link.Scheme + "://" + link.Host, link
}

// sent is one Server-Sent Event as it came.
type sent struct{ id, kind, data string }

// stream is an event stream that has begun: whoever opened it is heard of.
type stream struct{ resp *http.Response }

// open begins to follow a stream after the event with the id last, "" for its
// beginning.
func (d *door) open(ctx context.Context, path, last string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+path, nil)
	if err != nil {
		return nil, err
	}
	if d.key != "" {
		req.Header.Set(client.KeyHeader, keyIn(d.t, d.key))
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	return &stream{resp}, nil
}

// each gives each event to take until that returns false. It returns nil then, and
// else why the stream has ended. The stream is closed.
func (s *stream) each(take func(sent) bool) error {
	defer s.resp.Body.Close()
	lines := bufio.NewScanner(s.resp.Body)
	lines.Buffer(nil, 1<<20)
	var e sent
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data = value
		case "":
			if e.data != "" && !take(e) {
				return nil
			}
			e = sent{}
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

// hear is open and each.
func (d *door) hear(ctx context.Context, path, last string, take func(sent) bool) error {
	s, err := d.open(ctx, path, last)
	if err != nil {
		return err
	}
	return s.each(take)
}

// tool is a job of the API that runs a script.
func tool(name job.Name, script string) job.Spec {
	return job.Spec{Name: name, Tenant: "tests", Type: job.Tool, Worker: "shell", Instructions: script, Capabilities: []job.Capability{job.CanRunCommands},
		Workspace: job.Workspace{Isolation: job.NoWorkspace}}
}

// idOf returns the id of a job that the running server has.
func (b *bench) idOf(name string) job.ID {
	b.t.Helper()
	j, err := b.client().Job(b.t.Context(), name)
	if err != nil {
		b.fatalf("job %s: %v", name, err)
	}
	return j.Job.ID
}

// certificate writes one of its own authority, for this host alone, and returns the
// paths of it and of its key.
func (b *bench) certificate() (cert, key string) {
	b.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		b.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		b.t.Fatal(err)
	}
	cert, key = b.folder("cert.pem"), b.folder("key.pem")
	b.write(cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	b.write(key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return cert, key
}

// remote runs a command that says itself which scheduler it asks.
func (b *bench) remote(args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	cmd := exec.Command(schedulerProgram(), args...)
	cmd.Env, cmd.Dir = b.env, b.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		b.fatalf("scheduler %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
