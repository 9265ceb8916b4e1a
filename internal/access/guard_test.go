package access

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/internal/statedir"
)

// Only the scheduler's own names pass: a name that somebody made to point here (DNS
// rebinding) does not, nor does the name of another port's server.
func TestHosts(t *testing.T) {
	const tcp, tls = "127.0.0.1:7433", "192.168.1.5:443"
	hosts := []string{"Scheduler.Example.com", "other.example.com:8443", "10.0.0.9"}
	for _, tc := range []struct {
		local, host string
		want        bool
	}{
		{tcp, "127.0.0.1:7433", true}, {tcp, "localhost:7433", true}, {tcp, "LOCALHOST:7433", true}, {tcp, "[::1]:7433", true}, {tcp, "[0:0::1]:7433", true},
		{tcp, "127.0.0.1", false}, {tcp, "127.0.0.1:80", false}, {tcp, "localhost:7434", false}, {tcp, "[::1]", false}, {tcp, "127.0.0.1:", false}, {tcp, "127.0.0.1:07433", false},
		{tcp, "", false}, {tcp, "evil.example.com:7433", false}, {tcp, "127.0.0.1.evil.example.com:7433", false}, {tcp, "localhost.:7433", false}, {tcp, "0.0.0.0:7433", false},
		{tcp, "127.0.0.2:7433", false}, {tcp, "::1:7433", false}, {tcp, "[::1%25lo]:7433", false}, {tcp, "[127.0.0.1]:7433", false}, {tcp, "scheduler", false}, {tcp, "user@localhost:7433", false},
		{tcp, "localhost:7433:7433", false}, {tcp, "[::1", false}, {tcp, "]", false}, {tcp, "2130706433:7433", false}, {tcp, "192.168.1.5:7433", false},
		{tcp, "scheduler.example.com", true}, {tcp, "SCHEDULER.example.com:9", true}, {tcp, "other.example.com:8443", true}, {tcp, "10.0.0.9:1", true},
		{tcp, "other.example.com", false}, {tcp, "other.example.com:7433", false}, {tcp, "x.scheduler.example.com", false},
		{tls, "192.168.1.5", true}, {tls, "192.168.1.5:443", true}, {tls, "localhost", true}, {tls, "192.168.1.6", false}, {tls, "192.168.1.5:80", false},
		{"[2001:db8::7]:443", "[2001:db8::7]", true}, {"[2001:db8::7]:443", "[2001:db8::8]", false}, {"127.0.0.2:7433", "127.0.0.2:7433", true},
		{"", "127.0.0.1:80", false}, {"", "scheduler.example.com", true},
		{"unix", "scheduler", true}, {"unix", "localhost", true}, {"unix", "", true}, {"unix", "evil.example.com", false}, {"unix", "127.0.0.1:7433", false}, {"unix", "scheduler.example.com", false},
	} {
		door := TCP
		if tc.local == "unix" {
			door = Socket
		}
		accepted, err := checkHosts(hosts)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		if tc.local == tls || strings.HasSuffix(tc.local, "]:443") {
			r = httptest.NewRequest("GET", "https://x/", nil)
		}
		r.Host = tc.host
		if a, err := net.ResolveTCPAddr("tcp", tc.local); err == nil && tc.local != "" {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, a))
		}
		if got := ownHost(r, door, accepted); got != tc.want {
			t.Errorf("at %s Host %q: %t, want %t", tc.local, tc.host, got, tc.want)
		}
	}
	f := newFixture(t, Settings{})
	resp := f.do(request("GET", "/v1/me", "Host", "evil.example.com:7433", "Authorization", "Bearer "+f.text[Operate]))
	if p := problemIn(t, resp); resp.StatusCode != 421 || p.Name() != wrongHost || !strings.Contains(p.Detail, "evil.example.com") {
		t.Errorf("rebound: %+v", p)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		s    Settings
		want string // in the error
	}{
		{Settings{}, ""}, {Settings{PerSecond: 50, Burst: 200, Hosts: []string{"a.example.com", "a:1", "[::1]:2", "10.0.0.1"}}, ""},
		{Settings{PerSecond: -1}, "rate"}, {Settings{PerSecond: 1}, "burst"}, {Settings{Hosts: []string{"ok", "http://a"}}, "hosts[1]"},
		{Settings{Hosts: []string{"*"}}, "hosts[0]"}, {Settings{Hosts: []string{""}}, "hosts[0]"}, {Settings{Hosts: []string{"a:0"}}, "hosts[0]"}, {Settings{Hosts: []string{"a:70000"}}, "hosts[0]"}, {Settings{Hosts: []string{"*.example.com"}}, "hosts[0]"},
	} {
		_, err := NewGuard(GuardConfig{Door: TCP, Settings: tc.s})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc.s, err)
		}
	}
	if _, err := NewGuard(GuardConfig{Door: Browser}); err == nil {
		t.Error("a guard of the browsers' door")
	}
	f := newFixture(t, Settings{Hosts: []string{"a.example.com"}})
	if err := f.guard.Set(Settings{Hosts: []string{"*"}}); err == nil {
		t.Error("bad settings were taken")
	}
	if resp := f.do(request("GET", "/", "Host", "a.example.com")); resp.StatusCode != 200 {
		t.Errorf("after bad settings: %s", resp.Status)
	}
	if err := f.guard.Set(Settings{}); err != nil {
		t.Fatal(err)
	}
	if resp := f.do(request("GET", "/", "Host", "a.example.com")); resp.StatusCode != 421 {
		t.Errorf("after other settings: %s", resp.Status)
	}
}

// Nothing that a page of another site can make a browser send is let through,
// whatever it carries; what a program sends is.
func TestOtherSites(t *testing.T) {
	f := newFixture(t, Settings{})
	secret, err := f.sessions.create(t.Context(), "ada", Operate)
	if err != nil {
		t.Fatal(err)
	}
	credentials := map[string][]string{
		"nothing": nil,
		"cookie":  {"Cookie", "agentsched_session=" + secret},
		"token":   {"Authorization", "Bearer " + f.text[Operate]},
	}
	const own, evil, port = "http://" + home, "http://evil.example.com", "http://127.0.0.1:9999"
	for _, tc := range []struct {
		method  string
		headers []string
		want    int
	}{
		{"POST", nil, 200},
		{"POST", []string{"Origin", own}, 200},
		{"POST", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}, 200},
		{"POST", []string{"Origin", "null", "Sec-Fetch-Site", "same-origin"}, 200}, // the dashboard's own form: it sends no referrer
		{"POST", []string{"Origin", evil}, 403},
		{"POST", []string{"Origin", port}, 403},
		{"POST", []string{"Origin", "null"}, 403},
		{"POST", []string{"Origin", ""}, 403},
		{"POST", []string{"Origin", own, "Origin", evil}, 403},
		{"POST", []string{"Origin", "ftp://" + home}, 403},
		{"POST", []string{"Origin", home}, 403},
		{"POST", []string{"Origin", evil, "Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", []string{"Origin", port, "Sec-Fetch-Site", "same-site"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Site", "same-origin"}, 403},
		{"PUT", []string{"Origin", evil}, 403},
		{"DELETE", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", nil, 200},
		{"GET", []string{"Sec-Fetch-Site", "none"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "anything"}, 403},
		{"GET", []string{"Origin", evil}, 403},
		{"OPTIONS", []string{"Origin", evil, "Access-Control-Request-Method", "POST"}, 403},
	} {
		for name, credential := range credentials {
			// Each from a place of its own, so that none is refused for the others.
			r := request(tc.method, "/v1/pause", append(credential, tc.headers...)...)
			f.guard.refusals = newBuckets()
			resp := f.do(r)
			if resp.StatusCode != tc.want {
				t.Errorf("%s with %s and %q: %s, want %d", tc.method, name, tc.headers, resp.Status, tc.want)
			}
			if resp.StatusCode == 403 && (problemIn(t, resp).Name() != crossSite || resp.Header.Get("Access-Control-Allow-Origin") != "") {
				t.Errorf("%s with %s and %q: %v", tc.method, name, tc.headers, resp.Header)
			}
		}
	}
}

func TestCredentials(t *testing.T) {
	f := newFixture(t, Settings{})
	secret, err := f.sessions.create(t.Context(), "ada", Submit)
	if err != nil {
		t.Fatal(err)
	}
	good := "Bearer " + f.text[Read]
	cookie := "agentsched_session=" + secret
	for _, tc := range []struct {
		headers []string
		status  int
		who     string
	}{
		{nil, 200, nobody},
		{[]string{"Authorization", good}, 200, "the-read/read/tcp"},
		{[]string{"Authorization", "bearer  " + f.text[Operate]}, 200, "the-operate/operate/tcp"},
		{[]string{"Cookie", cookie}, 200, "ada/submit/browser"},
		{[]string{"Cookie", "agentsched_session=x; " + cookie}, 200, "ada/submit/browser"},
		{[]string{"Cookie", cookie, "Authorization", good}, 200, "the-read/read/tcp"},
		{[]string{"Cookie", cookie, "Authorization", good + "x"}, 401, ""},
		{[]string{"Cookie", "agentsched_session=" + strings.Repeat("A", 43)}, 200, nobody},
		{[]string{"Cookie", "__Host-agentsched=" + secret}, 200, nobody}, // that is for TLS
		{[]string{"Cookie", "other=" + secret}, 200, nobody},
		{[]string{"Authorization", ""}, 401, ""},
		{[]string{"Authorization", "Bearer"}, 401, ""},
		{[]string{"Authorization", "Bearer "}, 401, ""},
		{[]string{"Authorization", "Basic " + f.text[Read]}, 401, ""},
		{[]string{"Authorization", f.text[Read]}, 401, ""},
		{[]string{"Authorization", good, "Authorization", good}, 401, ""},
		{[]string{"Authorization", good + "," + good}, 401, ""},
		{[]string{"Authorization", "Bearer " + secret}, 401, ""},
	} {
		resp := f.do(request("GET", "/v1/jobs", tc.headers...))
		if resp.StatusCode != tc.status || principalIn(resp) != tc.who {
			t.Errorf("%q: %s, %q; want %d, %q", tc.headers, resp.Status, principalIn(resp), tc.status, tc.who)
		}
		if resp.StatusCode == 401 && (problemIn(t, resp).Name() != unauthenticated || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ")) {
			t.Errorf("%q: %v", tc.headers, resp.Header)
		}
	}
	for _, r := range f.told() {
		if strings.Contains(fmt.Sprint(r), secret) || strings.Contains(fmt.Sprint(r), f.text[Read][14:]) {
			t.Errorf("what is told holds a secret: %+v", r)
		}
	}
}

// A damaged file of tokens lets nobody in, and does not tell strangers where it lies.
func TestTokensThatCannotBeRead(t *testing.T) {
	f := newFixture(t, Settings{})
	path := f.docs.Where(statedir.TokensFile)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil { // no regular file
		t.Fatal(err)
	}
	f.tokens.doc.looked = time.Time{}
	resp := f.do(request("GET", "/", "Authorization", "Bearer "+f.text[Operate]))
	if p := problemIn(t, resp); resp.StatusCode != 503 || strings.Contains(p.Detail, path) {
		t.Errorf("%+v", p)
	}
	if told := f.told(); len(told) != 1 || !strings.Contains(told[0].Why, path) {
		t.Errorf("told %+v", told)
	}
}

func TestHeaders(t *testing.T) {
	f := newFixture(t, Settings{})
	for path, cache := range map[string]string{"/": "", "/assets/x.js": "", "/v1/jobs": "no-store", "/metrics": "no-store"} {
		for _, host := range []string{home, "evil.example.com"} { // on refusals too
			h := f.do(request("GET", path, "Host", host)).Header
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
				"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": cache,
			} {
				if h.Get(name) != want {
					t.Errorf("%s at %s: %s is %q, want %q", path, host, name, h.Get(name), want)
				}
			}
		}
	}
}

// Each client has a rate of its own: a token, whatever address it comes from, and an
// address that says not who it is.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Settings{PerSecond: 2, Burst: 3})
		ask := func(remote string, headers ...string) *http.Response {
			r := request("GET", "/v1/jobs", headers...)
			r.RemoteAddr = remote
			return f.do(r)
		}
		read := []string{"Authorization", "Bearer " + f.text[Read]}
		for range 3 {
			if resp := ask("127.0.0.1:1", read...); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
		}
		for range 5 {
			resp := ask("127.0.0.1:2", read...)
			if p := problemIn(t, resp); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || p.Name() != rateLimited {
				t.Errorf("the fourth: %v, %+v", resp.Header, p)
			}
		}
		if told := f.told(); len(told) != 1 || told[0].Status != 429 || told[0].Name != "the-read" {
			t.Errorf("told %+v, want the first", told)
		}
		for name, resp := range map[string]*http.Response{
			"another token": ask("127.0.0.1:1", "Authorization", "Bearer "+f.text[Submit]), "without one": ask("127.0.0.1:1"), "elsewhere": ask("127.0.0.2:1"),
		} {
			if resp.StatusCode != 200 {
				t.Errorf("%s: %s", name, resp.Status)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if a, b := ask("127.0.0.1:1", read...), ask("127.0.0.1:1", read...); a.StatusCode != 200 || b.StatusCode != 429 {
			t.Errorf("after half a second: %s, %s", a.Status, b.Status)
		}
		if err := f.guard.Set(Settings{PerSecond: 1000, Burst: 1000}); err != nil {
			t.Fatal(err)
		}
		ask("127.0.0.1:1", read...) // from now on
		time.Sleep(time.Second)
		for range 500 {
			if resp := ask("127.0.0.1:1", read...); resp.StatusCode != 200 {
				t.Fatalf("with another rate: %s", resp.Status)
			}
		}
		if err := f.guard.Set(Settings{}); err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			if resp := ask("127.0.0.1:1", read...); resp.StatusCode != 200 {
				t.Fatalf("without a rate: %s", resp.Status)
			}
		}
	})
}

// Who is refused again and again is told 429, and does not fill the log; who has a
// good token at the same address is let in.
func TestManyRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Settings{})
		wrong := func() *http.Response {
			return f.do(request("GET", "/v1/jobs", "Authorization", "Bearer "+f.text[Read][:55]+"AA"))
		}
		counts := map[int]int{}
		for range 100 {
			resp := wrong()
			counts[resp.StatusCode]++
			if resp.StatusCode == 429 && resp.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		if counts[401] != refusalsBurst || counts[429] != 100-refusalsBurst || len(f.told()) != refusalsBurst {
			t.Errorf("answers %v, %d told", counts, len(f.told()))
		}
		if resp := f.do(request("GET", "/v1/jobs", "Authorization", "Bearer "+f.text[Read])); resp.StatusCode != 200 {
			t.Errorf("a good token: %s", resp.Status)
		}
		time.Sleep(refusalsEvery)
		if a, b := wrong(), wrong(); a.StatusCode != 401 || b.StatusCode != 429 {
			t.Errorf("after %s: %s, %s", refusalsEvery, a.Status, b.Status)
		}
		if told := f.told(); len(told) != refusalsBurst+1 || told[refusalsBurst].Unreported != 100-refusalsBurst {
			t.Errorf("the last told: %+v", told[len(told)-1])
		}
	})
}

// A dashboard that nobody is logged in to asks again and again; the link that its
// person follows then is answered as any other.
func TestRefusalsOfDifferentKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes, in which more would be allowed
		f := newFixture(t, Settings{})
		for range 2 * refusalsBurst {
			if resp := f.do(request("GET", "/v1/me")); resp.StatusCode != 401 {
				t.Fatal(resp.Status)
			}
		}
		if n := len(f.told()); n != refusalsBurst {
			t.Errorf("%d told", n)
		}
		counts := map[int]int{}
		for range refusalsBurst + 1 {
			resp := f.do(request("GET", "/login?code=x"))
			if counts[resp.StatusCode]++; resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("%s is no page", resp.Status)
			}
		}
		if counts[401] != refusalsBurst || counts[429] != 1 {
			t.Errorf("bad links: %v", counts)
		}
		if resp := f.do(request("GET", f.link(t, Read).Path())); resp.StatusCode != 200 {
			t.Errorf("a good one: %s", resp.Status)
		}
	})
}

func TestClientsAreBounded(t *testing.T) {
	b, limit := newBuckets(), rate.Every(time.Hour) // no bucket fills again meanwhile
	for i := range maxClients + 100 {
		b.take(fmt.Sprint(i), limit, 1)
	}
	if len(b.byKey) != maxClients || b.order.Len() != maxClients {
		t.Errorf("%d and %d clients are kept", len(b.byKey), b.order.Len())
	}
	if wait, _ := b.take(fmt.Sprint(maxClients+99), limit, 1); wait == 0 {
		t.Error("the newest was forgotten")
	}
	if wait, _ := b.take("0", limit, 1); wait != 0 {
		t.Error("the oldest is kept")
	}
	for remote, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1", "[::ffff:10.0.0.1]:1": "10.0.0.1", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[2001:db8:1:2::9]:1": "2001:db8:1:2::/64", "[::1]:1": "::1", "[fe80::1%eth0]:1": "fe80::/64", "@": "@", "": "",
	} {
		if got := clientOf(remote); got != want {
			t.Errorf("%q is the client %q, want %q", remote, got, want)
		}
	}
}

// A request that goes on, such as a stream, ends soon after its token was revoked or
// its session is over, and not before.
func TestStreamsEndWithWhatLetThemIn(t *testing.T) {
	for name, end := range map[string]func(f *fixture, secret string){
		"revoked":    func(f *fixture, _ string) { f.tokens.Revoke(t.Context(), "the-read") },
		"logged out": func(f *fixture, secret string) { f.sessions.end(t.Context(), secret) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, Settings{})
				secret, err := f.sessions.create(t.Context(), "ada", Read)
				if err != nil {
					t.Fatal(err)
				}
				credential := []string{"Authorization", "Bearer " + f.text[Read]}
				if name == "logged out" {
					credential = []string{"Cookie", "agentsched_session=" + secret}
				}
				var cause error
				stream := f.guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					cause = context.Cause(r.Context())
				}))
				over := make(chan struct{})
				go func() {
					defer close(over)
					stream.ServeHTTP(httptest.NewRecorder(), request("GET", "/v1/stream", credential...))
				}()
				time.Sleep(time.Hour)
				synctest.Wait()
				select {
				case <-over:
					t.Fatalf("it ended by itself: %v", cause)
				default:
				}
				end(f, secret)
				begun := time.Now()
				<-over
				if took := time.Since(begun); took > validEvery || !errors.Is(cause, ErrOver) {
					t.Errorf("it ended after %s: %v", took, cause)
				}
			})
		})
	}
}
