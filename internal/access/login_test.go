package access

import (
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

func (f *fixture) link(t *testing.T, role Role) Link {
	t.Helper()
	l, err := f.links.NewLink("ada", role)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// login follows a link and returns the cookie as a header.
func (f *fixture) login(t *testing.T, role Role) string {
	t.Helper()
	resp := f.do(request("GET", f.link(t, role).Path()))
	if resp.StatusCode != 200 || len(resp.Cookies()) != 1 {
		t.Fatalf("%s with %v", resp.Status, resp.Header)
	}
	return resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
}

func (f *fixture) who(cookie string) string {
	return principalIn(f.do(request("GET", "/", "Cookie", cookie)))
}

// A link logs in once, from a page of another site too, with a cookie that neither
// scripts nor other sites' pages get at.
func TestLinkLogsInOnce(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		f := newFixture(t, Settings{Hosts: []string{"127.0.0.1"}})
		l := f.link(t, Submit)
		follow := func() *http.Request {
			return request("GET", scheme+"://"+home+l.Path(), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
		}
		resp := f.do(follow())
		if len(resp.Cookies()) != 1 {
			t.Fatalf("%s: cookies %v", resp.Status, resp.Cookies())
		}
		c := resp.Cookies()[0]
		name, secure := "agentsched_session", false
		if scheme == "https" {
			name, secure = "__Host-agentsched", true
		}
		if c.Name != name || c.Secure != secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || c.MaxAge != 7*24*3600 || len(c.Value) != secretLength {
			t.Errorf("%s: %s", scheme, c)
		}
		body := new(strings.Builder)
		resp.Write(body) //nolint:errcheck // into memory
		// No redirect: its request would go without the new cookie.
		if text := body.String(); resp.StatusCode != 200 || !strings.Contains(text, `http-equiv="refresh" content="0;url=/"`) || strings.Contains(text, l.Code) || resp.Header.Get("Cache-Control") != "no-store" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s", scheme, text)
		}
		if got := principalIn(f.do(request("GET", scheme+"://"+home+"/", "Cookie", c.Name+"="+c.Value))); got != "ada/submit/browser" {
			t.Errorf("%s: then it is %q", scheme, got)
		}
		again := f.do(follow())
		body.Reset()
		again.Write(body) //nolint:errcheck // into memory
		if again.StatusCode != 401 || len(again.Cookies()) != 0 || !strings.Contains(body.String(), "scheduler ui") {
			t.Errorf("%s: followed again: %s", scheme, body)
		}
		if told := f.told(); len(told) != 1 || told[0].Status != 401 || told[0].Path != "/login" || strings.Contains(told[0].Why, l.Code) {
			t.Errorf("%s: told %+v", scheme, told)
		}
	}
}

// Whoever only looks at a link does not use it up.
func TestLookingAheadLeavesTheLink(t *testing.T) {
	f := newFixture(t, Settings{})
	l := f.link(t, Read)
	for _, r := range []*http.Request{
		request("HEAD", l.Path()), request("POST", l.Path()), request("OPTIONS", l.Path()),
		request("GET", l.Path(), "Sec-Purpose", "prefetch"), request("GET", l.Path(), "Sec-Purpose", "prefetch;prerender"), request("GET", l.Path(), "Sec-Purpose", "prefetch;anonymous-client-ip"),
		request("GET", l.Path(), "Purpose", "prefetch"), request("GET", l.Path(), "X-Moz", "prefetch"), request("GET", l.Path(), "X-Purpose", "preview"),
		request("GET", l.Path(), "Host", "evil.example.com:7433"), request("GET", l.Path(), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "image"),
	} {
		if resp := f.do(r); len(resp.Cookies()) != 0 {
			t.Errorf("%s %v logs in", r.Method, r.Header)
		}
	}
	if resp := f.do(request("HEAD", l.Path())); resp.StatusCode != 200 {
		t.Errorf("HEAD: %s", resp.Status)
	}
	if resp := f.do(request("GET", l.Path())); len(resp.Cookies()) != 1 {
		t.Errorf("then it does not work: %s", resp.Status)
	}
}

func TestLinksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Settings{})
		late, soon := f.link(t, Read), f.link(t, Read)
		time.Sleep(linkLasts - time.Nanosecond)
		if resp := f.do(request("GET", soon.Path())); resp.StatusCode != 200 {
			t.Errorf("just before its end: %s", resp.Status)
		}
		time.Sleep(time.Nanosecond)
		if resp := f.do(request("GET", late.Path())); resp.StatusCode != 401 {
			t.Errorf("at its end: %s", resp.Status)
		}
		first := f.link(t, Read)
		second := f.link(t, Read)
		for range maxLinks - 1 {
			f.link(t, Read)
		}
		if len(f.links.list) != maxLinks {
			t.Errorf("%d links are kept", len(f.links.list))
		}
		if a, b := f.do(request("GET", first.Path())), f.do(request("GET", second.Path())); a.StatusCode != 401 || b.StatusCode != 200 {
			t.Errorf("the oldest: %s, the next: %s", a.Status, b.Status)
		}
		if _, err := f.links.NewLink("ada", "root"); err == nil {
			t.Error("a link for a role that there is not")
		}
	})
}

// A browser stays logged in over a restart; the file does not hold what it sends.
func TestSessionsSurviveARestart(t *testing.T) {
	f := newFixture(t, Settings{})
	cookie, gone := f.login(t, Operate), f.login(t, Read)
	if resp := f.do(request("POST", "/logout", "Cookie", gone)); resp.StatusCode != 204 || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("logout: %s, %v", resp.Status, resp.Header)
	}
	if resp := f.do(request("POST", "/logout", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate")); resp.StatusCode != 303 || resp.Header.Get("Location") != "/" {
		t.Errorf("logout by a form: %s, %v", resp.Status, resp.Header)
	}
	text, err := os.ReadFile(f.sessions.doc.where())
	_, secret, _ := strings.Cut(cookie, "=")
	if err != nil || strings.Contains(string(text), secret) || !strings.Contains(string(text), "sha256") {
		t.Errorf("the file: %s, %v", text, err)
	}
	if info, err := os.Stat(f.sessions.doc.where()); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	f.restart(t)
	if a, b := f.who(cookie), f.who(gone); a != "ada/operate/browser" || b != nobody {
		t.Errorf("after a restart: %q, and who had logged out: %q", a, b)
	}
}

// A session ends after 12 hours without a request, and after 7 days in any case,
// over restarts too.
func TestSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Settings{})
		idle := f.login(t, Read)
		time.Sleep(sessionIdle - time.Second)
		f.restart(t)
		if got := f.who(idle); got == nobody {
			t.Error("it is over before 12 hours")
		}
		f.restart(t) // what was used just now is known
		time.Sleep(sessionIdle - time.Second)
		if got := f.who(idle); got == nobody {
			t.Error("it is over although it was used")
		}
		time.Sleep(sessionIdle)
		if got := f.who(idle); got != nobody {
			t.Error("it is not over after 12 idle hours")
		}
		begun, busy := time.Now(), f.login(t, Read)
		for f.who(busy) != nobody {
			time.Sleep(time.Hour)
		}
		if lasted := time.Since(begun); lasted != sessionLasts {
			t.Errorf("it lasted %s", lasted)
		}
		// A check that is not a use, as that of a stream, does not prolong it.
		_, secret, _ := strings.Cut(f.login(t, Read), "=")
		time.Sleep(sessionIdle - time.Nanosecond)
		if _, err := f.sessions.check(t.Context(), secret, false); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := f.sessions.check(t.Context(), secret, false); err == nil {
			t.Error("looking prolonged it")
		}
	})
}

func TestLoginReplacesTheSession(t *testing.T) {
	f := newFixture(t, Settings{})
	old := f.login(t, Read)
	f.do(request("GET", f.link(t, Operate).Path(), "Cookie", old))
	if got := f.who(old); got != nobody {
		t.Errorf("the old session is %q's still", got)
	}
}

func TestLogoutOfAnotherSite(t *testing.T) {
	f := newFixture(t, Settings{})
	cookie := f.login(t, Read)
	for _, r := range []*http.Request{
		request("GET", "/logout", "Cookie", cookie), request("POST", "/logout", "Cookie", cookie, "Sec-Fetch-Site", "cross-site"), request("POST", "/logout", "Cookie", cookie, "Origin", "null"),
	} {
		if resp := f.do(r); resp.StatusCode < 400 || f.who(cookie) == nobody {
			t.Errorf("%s %v: %s", r.Method, r.Header, resp.Status)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	f := newFixture(t, Settings{})
	first, list := f.login(t, Read), map[digest]*session{}
	for i := range byte(255) {
		for j := range byte(4) {
			x := &session{Hash: digest{i, j, 1}, Role: Read, Created: time.Now(), Used: time.Now()}
			list[x.Hash] = x
		}
	}
	f.sessions.mu.Lock()
	err := f.sessions.change(t.Context(), func(all map[digest]*session) { maps.Copy(all, list) })
	f.sessions.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	second := f.login(t, Read)
	if len(f.sessions.list) != maxSessions || f.who(first) != nobody || f.who(second) == nobody {
		t.Errorf("%d sessions, the first %q, the last %q", len(f.sessions.list), f.who(first), f.who(second))
	}
}

func TestSessionFilesThatAreNotRight(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"open": {`{"sessions":[]}`, 0o644}, "empty": {"", 0o600}, "cut": {`{"sessions":[{`, 0o600}, "null": {`{"sessions":[null]}`, 0o600},
		"role": {`{"sessions":[{"sha256":"` + strings.Repeat("ab", 32) + `","role":"root"}]}`, 0o600}, "no hash": {`{"sessions":[{"role":"read"}]}`, 0o600},
	} {
		docs := statedir.Files(t.TempDir())
		path := docs.Where(statedir.SessionsFile)
		if err := os.WriteFile(path, []byte(tc.text), tc.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSessions(t.Context(), docs); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Somebody else does not get in by a link, and does not use it up.
func TestLinkOfAStranger(t *testing.T) {
	f := newFixture(t, Settings{})
	f.stranger = func(r *http.Request) bool { return r.Header.Get("X-Stranger") != "" }
	f.route()
	l := f.link(t, Operate)
	if resp := f.do(request("GET", l.Path(), "X-Stranger", "1")); resp.StatusCode != 403 || len(resp.Cookies()) != 0 {
		t.Errorf("a stranger: %s", resp.Status)
	}
	if told := f.told(); len(told) != 1 || told[0].Status != 403 || strings.Contains(told[0].Why, l.Code) {
		t.Errorf("told %+v", told)
	}
	if resp := f.do(request("GET", l.Path())); len(resp.Cookies()) != 1 {
		t.Errorf("then it does not work: %s", resp.Status)
	}
}
