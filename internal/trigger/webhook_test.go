package trigger

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

const testSecret = "It's a Secret to Everybody"

// heard runs triggers whose webhooks are heard at the address that it returns.
func heard(t *testing.T, q *queue, triggers map[Name]Settings) (r *Runner, cfg Config, address string) {
	t.Helper()
	ln, err := Listener{Listen: "127.0.0.1:0"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	cfg = config(t, q, triggers)
	cfg.Listen = func() (net.Listener, error) { return ln, nil }
	cfg.Getenv = func(name string) string { return map[string]string{"SECRET": testSecret, "SHORT": "x"}[name] }
	r, stop := started(t, cfg)
	t.Cleanup(stop)
	return r, cfg, "http://" + ln.Addr().String()
}

// request sends body with headers, signed by key.
func request(t *testing.T, method, url, body, key string, headers ...string) (code int, said string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	signed := body
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == TimestampHeader {
			signed = headers[i+1] + "." + body
		}
	}
	if key != "" && req.Header.Get(SignatureHeader) == "" {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(signed))
		req.Header.Set(SignatureHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	// The runner listens before it serves, and takes up triggers in its own time:
	// until then it says that it should be tried again.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), reloading) {
			req.Body = io.NopCloser(strings.NewReader(body))
			continue
		}
		return resp.StatusCode, string(text)
	}
}

func TestWebhookAnswers(t *testing.T) {
	q := &queue{}
	_, _, address := heard(t, q, map[Name]Settings{
		"deploy": {Webhook: &Webhook{Path: "/hooks/deploy", SecretEnv: "SECRET", MaxBodyBytes: 100}, Job: "/j.yaml", WithEvent: true},
		"poor":   {Webhook: &Webhook{Path: "/hooks/poor", SecretEnv: "SHORT"}, Job: "/j.yaml"},
		"off":    {Webhook: &Webhook{Path: "/hooks/off", SecretEnv: "SECRET"}, Job: "/j.yaml", Enabled: new(bool)},
	})
	deploy := address + "/hooks/deploy"
	for _, tt := range []struct {
		about, method, url, body, key string
		headers                       []string
		code                          int
		want                          string
	}{
		{"right", "POST", deploy, `{"a":1}`, testSecret, nil, 202, `"result":"submitted","firing":"deploy@`},
		// The example of GitHub's documentation.
		{"theirs", "POST", deploy, "Hello, World!", "", []string{SignatureHeader, "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"}, 202, "submitted"},
		{"first of a delivery", "POST", deploy, "x", testSecret, []string{DeliveryHeader, "7"}, 202, "deploy#"},
		{"again", "POST", deploy, "x", testSecret, []string{DeliveryHeader, "7"}, 200, "accepted before"},
		{"another", "POST", deploy, "y", testSecret, []string{"X-GitHub-Delivery", "8"}, 202, "submitted"},
		{"replayed with another id", "POST", deploy, "y", testSecret, []string{"X-GitHub-Delivery", "9"}, 200, "accepted before"},
		{"replayed without one", "POST", deploy, "y", testSecret, nil, 200, "accepted before"},
		{"ping", "POST", deploy, "x", testSecret, []string{"X-GitHub-Event", "ping"}, 200, "pong"},
		{"ping of anybody", "POST", deploy, "x", "", []string{"X-GitHub-Event", "ping"}, 401, "missing"},
		{"another secret", "POST", deploy, "x", testSecret + "!", nil, 401, "not right"},
		{"no signature", "POST", deploy, "x", "", nil, 401, "missing"},
		{"the old hash", "POST", deploy, "x", "", []string{SignatureHeader, "sha1=757107ea0eb2509fc211221cce984b8a37570b6d"}, 401, "sha256=HEX"},
		{"cut", "POST", deploy, "x", "", []string{SignatureHeader, "sha256=7571"}, 401, "sha256=HEX"},
		{"method", "GET", deploy, "", testSecret, nil, 405, "want POST"},
		{"at the bound", "POST", deploy, strings.Repeat("x", 100), testSecret, nil, 202, "submitted"},
		{"above it", "POST", deploy, strings.Repeat("x", 101), testSecret, nil, 413, "more than 100 bytes"},
		{"delivery id", "POST", deploy, "x", testSecret, []string{DeliveryHeader, strings.Repeat("7", 201)}, 400, "too long"},
		{"nowhere", "POST", address + "/hooks", "x", testSecret, nil, 404, "no webhook"},
		{"below", "POST", deploy + "/x", "x", testSecret, nil, 404, "no webhook"},
		{"disabled", "POST", address + "/hooks/off", "x", testSecret, nil, 404, "no webhook"},
		{"a secret that is too short", "POST", address + "/hooks/poor", "x", "x", nil, 503, "no secret"},
	} {
		before := len(q.ids())
		code, said := request(t, tt.method, tt.url, tt.body, tt.key, tt.headers...)
		if code != tt.code || !strings.Contains(said, tt.want) {
			t.Errorf("%s: %d %s, want %d with %q", tt.about, code, said, tt.code, tt.want)
		}
		if fired := len(q.ids()) > before; fired != (tt.code == 202) {
			t.Errorf("%s: fired %v", tt.about, fired)
		}
	}
	if f := q.got[0]; f.Kind != job.ByEvent || f.Event != `{"a":1}` || f.Trigger != "deploy" {
		t.Errorf("firing %+v", f)
	}
}

// TestWebhookSubmission: what the sender learns about it, and what is kept.
func TestWebhookSubmission(t *testing.T) {
	q := &queue{answer: func(Firing) error { return errors.New("the disk is full of secrets") }}
	triggers := map[Name]Settings{"a": {Webhook: &Webhook{Path: "/a", SecretEnv: "SECRET"}, Job: "/j.yaml"}}
	r, cfg, address := heard(t, q, triggers)
	post := func() (int, string) {
		t.Helper()
		return request(t, "POST", address+"/a", "x", testSecret, DeliveryHeader, "7")
	}
	if code, said := post(); code != 503 || strings.Contains(said, "secrets") {
		t.Errorf("failure: %d %s", code, said)
	}
	if s := r.Status()[0]; !strings.Contains(s.LastError, "disk is full") {
		t.Errorf("status %+v", s)
	}
	q.set(func(Firing) error { return ErrActive })
	if code, said := post(); code != 200 || !strings.Contains(said, "skipped") {
		t.Errorf("active: %d %s", code, said)
	}
	q.set(nil)
	if code, said := post(); code != 200 || !strings.Contains(said, "before") { // it was answered
		t.Errorf("again: %d %s", code, said)
	}
	// A reload keeps what was delivered, and so does the file.
	if err := r.Reload(triggers); err != nil {
		t.Fatal(err)
	}
	if code, said := post(); code != 200 || !strings.Contains(said, "before") {
		t.Errorf("after a reload: %d %s", code, said)
	}
	b, _, err := openBook(t.Context(), cfg.State, time.Now())
	if err != nil || len(b.get("a", sourceID(triggers["a"])).Deliveries) != 2 {
		t.Errorf("%v, %v: want the id of the delivery, and its signature", b, err)
	}
	if code, _ := request(t, "POST", address+"/a", "y", testSecret); code != 202 {
		t.Errorf("a new one: %d", code)
	}
}

// TestWebhookTimestamp: a request that somebody recorded is of no use.
func TestWebhookTimestamp(t *testing.T) {
	q := &queue{}
	_, _, address := heard(t, q, map[Name]Settings{"a": {
		Webhook: &Webhook{Path: "/a", SecretEnv: "SECRET", MaxAge: job.Duration(5 * time.Minute), Methods: []string{"PUT"}}, Job: "/j.yaml",
	}})
	stamp := func(ago time.Duration) string { return strconv.FormatInt(time.Now().Add(-ago).Unix(), 10) }
	now := stamp(0)
	for _, tt := range []struct {
		about   string
		headers []string
		code    int
		want    string
	}{
		{"fresh", []string{TimestampHeader, now, DeliveryHeader, "1"}, 202, "submitted"},
		{"the same with another id", []string{TimestampHeader, now, DeliveryHeader, "2"}, 200, "before"},
		{"a little old", []string{TimestampHeader, stamp(4 * time.Minute)}, 202, "submitted"},
		{"old", []string{TimestampHeader, stamp(6 * time.Minute)}, 401, "more than 5m0s away"},
		{"of tomorrow", []string{TimestampHeader, stamp(-24 * time.Hour)}, 401, "away"},
		{"no number", []string{TimestampHeader, "now"}, 401, "not a number"},
		{"none", nil, 401, "missing"},
		{"not signed", []string{TimestampHeader, now, SignatureHeader, "sha256=" + strings.Repeat("0", 64)}, 401, "not right"},
	} {
		if code, said := request(t, "PUT", address+"/a", "x", testSecret, tt.headers...); code != tt.code || !strings.Contains(said, tt.want) {
			t.Errorf("%s: %d %s, want %d with %q", tt.about, code, said, tt.code, tt.want)
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode uint32) string {
		path := filepath.Join(dir, name)
		write(t, path, text, 0o600)
		if err := chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r := &Runner{cfg: Config{Getenv: func(string) string { return "" }}}
	good := file("good", testSecret+"\n", 0o600)
	if key, err := r.secret(&Webhook{SecretFile: good}); err != nil || !bytes.Equal(key, []byte(testSecret)) {
		t.Errorf("%q, %v", key, err)
	}
	for path, want := range map[string]string{
		file("open", testSecret, 0o640): "chmod 600", file("short", "1234567890", 0o600): "want 16 or more",
		filepath.Join(dir, "none"): "no such file", dir: "not a file", file("long", strings.Repeat("x", 5000), 0o400): "too long",
	} {
		if _, err := r.secret(&Webhook{Path: "/a", SecretFile: path}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "12345") {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := r.secret(&Webhook{SecretEnv: "NONE"}); err == nil || !strings.Contains(err.Error(), "variable NONE has 0 bytes") {
		t.Error(err)
	}
}

func TestListener(t *testing.T) {
	for in, want := range map[Listener]string{
		DefaultListener():                         "",
		{Listen: "[::1]:80"}:                      "",
		{Listen: "0.0.0.0:80"}:                    "allow_remote",
		{Listen: "10.0.0.1:80"}:                   "allow_remote",
		{Listen: "0.0.0.0:80", AllowRemote: true}: "",
		{Listen: ":80"}:                           "not an IP address",
		{Listen: "localhost:80"}:                  "not an IP address",
		{Listen: "127.0.0.1"}:                     "not an IP address",
	} {
		if err := in.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", in, err, want)
		}
	}
	first, err := Listener{Listen: "127.0.0.1:0"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := (Listener{Listen: first.Addr().String()}).Open(); err == nil || !strings.Contains(err.Error(), "webhooks.listen") {
		t.Errorf("a port that is taken: %v", err)
	}
}

// TestListenFails: at the start it ends the run, later it is shown.
func TestListenFails(t *testing.T) {
	hook := map[Name]Settings{"a": {Webhook: &Webhook{Path: "/a", SecretEnv: "SECRET"}, Job: "/j.yaml"}}
	cfg := config(t, &queue{}, hook)
	cfg.Listen = func() (net.Listener, error) { return nil, errors.New("the port is taken") }
	cfg.Getenv = func(string) string { return testSecret }
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("ended with %v", err)
	}
	runs := make(chan bool, 1)
	cfg.Triggers = map[Name]Settings{"b": {Command: &Command{Run: "c", Every: job.Duration(time.Hour)}, Job: "/j.yaml"}}
	cfg.Run = func(context.Context, string, string, io.Writer) error { runs <- true; return nil }
	logged := make(chan string, 9)
	cfg.Log = zerolog.New(writer(func(p []byte) { logged <- string(p) }))
	r, stop := started(t, cfg)
	defer stop()
	<-runs // what there is at the start was taken up
	if err := r.Reload(hook); err != nil {
		t.Fatal(err)
	}
	if line := <-logged; !strings.Contains(line, "the port is taken") {
		t.Errorf("log %s", line)
	}
	if s := r.Status()[0]; !strings.Contains(s.LastError, "taken") {
		t.Errorf("status %+v", s)
	}
}

// TestSlowWebhooks: senders whose bodies do not come keep out nobody else, and what
// the header tells is refused before the body has come.
func TestSlowWebhooks(t *testing.T) {
	q := &queue{}
	r, _, address := heard(t, q, map[Name]Settings{"deploy": {Webhook: &Webhook{Path: "/hooks/deploy", SecretEnv: "SECRET"}, Job: "/j.yaml"}})
	if code, said := request(t, "POST", address+"/hooks/deploy", "first", testSecret); code != 202 {
		t.Fatalf("answered %d %s", code, said)
	}
	host := strings.TrimPrefix(address, "http://")
	slow := func(header string) net.Conn {
		c, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "POST /hooks/deploy HTTP/1.1\r\nHost: x\r\n"+header+"\r\n\r\nabc"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	newest := func() *reading {
		r.readings.mu.Lock()
		defer r.readings.mu.Unlock()
		if n := len(r.readings.list); n > 0 {
			return r.readings.list[n-1]
		}
		return nil
	}
	signature := SignatureHeader + ": sha256=" + strings.Repeat("0", 64)
	late := testrun.After(t)
	// begun returns when the body is being read: the others come behind it.
	begun := func() net.Conn {
		before := newest()
		c := slow(signature + "\r\nContent-Length: 1000")
		for newest() == before {
			select {
			case <-late:
				t.Fatal("a body is not read")
			case <-time.After(time.Millisecond):
			}
		}
		return c
	}
	first := begun()
	for range 4 * maxReading {
		begun()
	}
	began := time.Now()
	if code, said := request(t, "POST", address+"/hooks/deploy", "another", testSecret); code != 202 {
		t.Errorf("beside slow senders: answered %d %s", code, said)
	}
	if took := time.Since(began); took >= bodyTime {
		t.Errorf("it was answered after %s, when the slow ones had ended", took)
	}
	// The oldest was told to come again, the moment that others needed its place.
	for what, c := range map[string]net.Conn{
		"while others wait": first,
		"is missing":        slow("Content-Length: 1000"),
		"has more than":     slow(signature + "\r\nContent-Length: 100000000"),
	} {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("no answer, want %q: %v", what, err)
			continue
		}
		answer, err := io.ReadAll(resp.Body)
		if resp.Body.Close(); err != nil || !strings.Contains(string(answer), what) {
			t.Errorf("answered %q, %v; want %q", answer, err, what)
		}
	}
}
