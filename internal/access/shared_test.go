package access

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

// counted are documents that count what is asked of them, and fail while failing is set.
type counted struct {
	statedir.Documents
	looks, writes atomic.Int64
	failing       atomic.Bool
}

var errAway = errors.New("the database is away")

func (c *counted) Read(ctx context.Context, name string) ([]byte, string, error) {
	c.looks.Add(1)
	if c.failing.Load() {
		return nil, "", errAway
	}
	return c.Documents.Read(ctx, name)
}

func (c *counted) Version(ctx context.Context, name string) (string, error) {
	c.looks.Add(1)
	if c.failing.Load() {
		return "", errAway
	}
	return c.Documents.Version(ctx, name)
}

func (c *counted) Write(ctx context.Context, name string, text []byte, version string) (string, error) {
	c.writes.Add(1)
	if c.failing.Load() {
		return "", errAway
	}
	return c.Documents.Write(ctx, name, text, version)
}

func openSessions(t *testing.T, docs statedir.Documents) *Sessions {
	t.Helper()
	s, err := OpenSessions(t.Context(), docs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Who logs in at one host is known to another at once, and who logs out there is not any
// more 250 ms later; neither undoes what the other has written.
func TestSessionsOfTwoHosts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, b := openSessions(t, statedir.Files(dir)), openSessions(t, statedir.Files(dir))
		var secrets []string
		for i, s := range []*Sessions{a, b, a, b} {
			secret, err := s.create(t.Context(), "ada", Read)
			if err != nil {
				t.Fatal(err)
			}
			secrets = append(secrets, secret)
			other := []*Sessions{b, a}[i%2]
			if p, err := other.check(t.Context(), secret, true); err != nil || p != (Principal{Name: "ada", Role: Read, Door: Browser}) {
				t.Errorf("login %d is %+v on the other host, %v", i, p, err)
			}
			time.Sleep(missEvery)
		}
		if err := b.end(t.Context(), secrets[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := b.check(t.Context(), secrets[0], false); !errors.Is(err, errSession) {
			t.Errorf("where it was ended: %v", err)
		}
		time.Sleep(lookEvery)
		if _, err := a.check(t.Context(), secrets[0], true); !errors.Is(err, errSession) {
			t.Errorf("%s after it was ended on the other host: %v", lookEvery, err)
		}
		for _, s := range []*Sessions{a, b, openSessions(t, statedir.Files(dir))} {
			for i, secret := range secrets[1:] {
				if _, err := s.check(t.Context(), secret, false); err != nil {
					t.Errorf("session %d: %v", i+1, err)
				}
			}
		}
		// What is used on one host alone is not over for the other.
		for begun := time.Now(); time.Since(begun) < 2*sessionIdle; time.Sleep(time.Hour) {
			if _, err := a.check(t.Context(), secrets[1], true); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.check(t.Context(), secrets[1], true); err != nil {
			t.Errorf("used on the other host: %v", err)
		}
		if _, err := b.create(t.Context(), "bob", Read); err != nil { // which removes what is over
			t.Fatal(err)
		}
		if _, err := a.check(t.Context(), secrets[1], true); err != nil {
			t.Errorf("after the other host removed what is over: %v", err)
		}
		if _, err := a.check(t.Context(), secrets[2], true); !errors.Is(err, errSession) {
			t.Errorf("used nowhere: %v", err)
		}
	})
}

// Requests cost no round trip each, whatever they bring.
func TestLooksAreBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		docs := &counted{Documents: statedir.Files(dir)}
		tokens, err := OpenTokens(t.Context(), docs)
		if err != nil {
			t.Fatal(err)
		}
		sessions := openSessions(t, docs)
		_, good := create(t, tokens, "ci", Read, 0)
		secret, err := sessions.create(t.Context(), "ada", Read)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(token, secret string) (looks int64) {
			before := docs.looks.Load()
			for range 1000 { // a second
				tokens.Check(t.Context(), token)          //nolint:errcheck // some are wrong
				sessions.check(t.Context(), secret, true) //nolint:errcheck // some are wrong
				time.Sleep(time.Millisecond)
			}
			return docs.looks.Load() - before
		}
		if n := ask(good, secret); n > 10 {
			t.Errorf("1000 requests that are let in had the documents looked at %d times, want 4 each", n)
		}
		if n := ask("agsk_aaaaaaaa_"+strings.Repeat("A", 43), strings.Repeat("A", 43)); n > 210 {
			t.Errorf("1000 requests that are not had the documents looked at %d times, want 100 each", n)
		}
		if n := docs.writes.Load(); n != 2 {
			t.Errorf("the documents were written %d times, want twice", n)
		}
	})
}

// While the documents cannot be read nobody is let in, and nobody is taken for logged out
// or revoked; a session that was ended meanwhile stays so.
func TestDocumentsThatAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Settings{})
		docs := &counted{Documents: f.docs}
		f.docs, f.tokens.doc.docs = docs, docs
		f.restart(t)
		cookie, other := f.login(t, Operate), f.login(t, Operate)
		_, secret, _ := strings.Cut(other, "=")
		docs.failing.Store(true)
		if err := f.sessions.end(t.Context(), secret); !errors.Is(err, errAway) {
			t.Errorf("ended: %v", err)
		}
		time.Sleep(lookEvery)
		for _, header := range [][]string{{"Cookie", cookie}, {"Authorization", "Bearer " + f.text[Read]}} {
			resp := f.do(request("GET", "/", header...))
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %s", header[0], resp.Status)
			} else if p := problemIn(t, resp); strings.Contains(p.Detail, errAway.Error()) {
				t.Errorf("%s: strangers are told %q", header[0], p.Detail)
			}
		}
		docs.failing.Store(false)
		time.Sleep(lookEvery)
		if a, b := f.who(cookie), f.who(other); a != "ada/operate/browser" || b != nobody {
			t.Errorf("then it is %q, and who had logged out %q", a, b)
		}
		if resp := f.do(request("GET", "/", "Authorization", "Bearer "+f.text[Read])); principalIn(resp) != "the-read/read/tcp" {
			t.Errorf("then the token is %q's: %s", principalIn(resp), resp.Status)
		}
		third := f.login(t, Read) // which writes who has logged out, too
		f.restart(t)
		if a, b := f.who(third), f.who(other); a == nobody || b != nobody {
			t.Errorf("after a restart it is %q, and who had logged out %q", a, b)
		}
	})
}
