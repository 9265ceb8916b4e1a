package access

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

// openTokens opens those of a folder, at the path of its tokens.json.
func openTokens(t testing.TB, path string) *Tokens {
	t.Helper()
	if filepath.Base(path) != statedir.TokensFile {
		t.Fatalf("%s is no file of tokens", path)
	}
	tokens, err := OpenTokens(t.Context(), statedir.Files(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func create(t testing.TB, tokens *Tokens, name string, role Role, ttl time.Duration) (Token, string) {
	t.Helper()
	tok, text, err := tokens.Create(t.Context(), name, role, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return tok, text
}

// A token lets in who has it, also after a restart; its secret stands nowhere.
func TestTokenSurvivesARestartWithoutItsSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	made, text := create(t, openTokens(t, path), "ci", Submit, time.Hour)
	if !tokenID.MatchString(made.ID) || !strings.HasPrefix(text, "agsk_"+made.ID+"_") || len(text) != 5+8+1+43 {
		t.Errorf("made %+v with the text %q", made, text)
	}
	again := openTokens(t, path)
	p, err := again.Check(t.Context(), text)
	if err != nil || p != (Principal{Name: "ci", Role: Submit, Door: TCP}) {
		t.Errorf("after a restart it is %+v, %v", p, err)
	}
	list, err := again.List(t.Context())
	if err != nil || len(list) != 1 || list[0].LastUsed.IsZero() {
		t.Fatalf("list %+v, %v", list, err)
	}
	list[0].LastUsed = time.Time{}
	if list[0] != made {
		t.Errorf("list has %+v, made was %+v", list[0], made)
	}
	kept, err := os.ReadFile(path)
	if err != nil || bytes.Contains(kept, []byte(text[14:])) {
		t.Errorf("the file holds the secret, or %v:\n%s", err, kept)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestTokensThatDoNotLetIn(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	made, good := create(t, tokens, "ci", Operate, 0)
	_, other := create(t, tokens, "other", Operate, 0)
	flip := func(s string, at int) string {
		b := []byte(s)
		if b[at]++; b[at] == '{' {
			b[at] = 'a'
		}
		return string(b)
	}
	for _, text := range []string{
		"", "agsk_", good[:len(good)-1], good + "A", " " + good, strings.ToUpper(good), flip(good, 7), flip(good, 20), flip(good, len(good)-1),
		"agsk_" + made.ID + other[13:], strings.Replace(good, "_", "-", 1), "agsk_" + made.ID + "_" + strings.Repeat("A", 43),
		"agsk_zzzzzzzz_" + strings.Repeat("A", 43), good + "\x00", made.ID, strings.Repeat("agsk_", 1000),
	} {
		if p, err := tokens.Check(t.Context(), text); !errors.Is(err, ErrToken) || p != (Principal{}) {
			t.Errorf("%q is %+v, %v", text, p, err)
		}
	}
	if _, err := tokens.Check(t.Context(), good); err != nil {
		t.Error(err)
	}
}

// An unknown id costs the same steps as a wrong secret: as many comparisons, of as
// many bytes.
func TestUnknownIDsTakeTheStepsOfWrongSecrets(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	made, _ := create(t, tokens, "ci", Operate, 0)
	var steps []string
	tokens.compare = func(a, b []byte) int {
		steps = append(steps, fmt.Sprint(len(a), len(b)))
		return subtle.ConstantTimeCompare(a, b)
	}
	stepsOf := func(id string) string {
		steps = nil
		if _, err := tokens.Check(t.Context(), "agsk_"+id+"_"+strings.Repeat("A", 43)); !errors.Is(err, ErrToken) {
			t.Fatal(err)
		}
		return strings.Join(steps, ", ")
	}
	wrong, unknown := stepsOf(made.ID), stepsOf("aaaaaaaa")
	if wrong != unknown || wrong != "32 32, 32 32" {
		t.Errorf("a wrong secret compares %q, an unknown id %q", wrong, unknown)
	}
}

// What another process does is seen: a new token at once, a revoked one within
// 250 ms. Its own doing a process sees at once.
func TestTokensOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	synctest.Test(t, func(t *testing.T) {
		daemon, cli := openTokens(t, path), openTokens(t, path)
		_, first := create(t, cli, "first", Read, 0)
		if _, err := daemon.Check(t.Context(), first); err != nil {
			t.Errorf("a new token: %v", err)
		}
		if _, err := cli.Revoke(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		if _, err := cli.Check(t.Context(), first); !errors.Is(err, ErrToken) {
			t.Errorf("who revoked it: %v", err)
		}
		time.Sleep(lookEvery)
		if _, err := daemon.Check(t.Context(), first); !errors.Is(err, ErrToken) {
			t.Errorf("after %s: %v", lookEvery, err)
		}
		made, second := create(t, daemon, "second", Read, 0)
		if gone, err := daemon.Revoke(t.Context(), made.ID); err != nil || gone != made {
			t.Errorf("revoked %+v, %v", gone, err)
		}
		if _, err := daemon.Check(t.Context(), second); !errors.Is(err, ErrToken) {
			t.Errorf("its own: %v", err)
		}
		if _, err := daemon.Revoke(t.Context(), made.ID); !errors.Is(err, ErrNoToken) {
			t.Errorf("revoked twice: %v", err)
		}
	})
}

func TestTokensExpire(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	synctest.Test(t, func(t *testing.T) {
		tokens := openTokens(t, path)
		_, text := create(t, tokens, "short", Read, time.Hour)
		time.Sleep(time.Hour - time.Nanosecond)
		if _, err := tokens.Check(t.Context(), text); err != nil {
			t.Error(err)
		}
		if n, err := tokens.Usable(t.Context()); n != 1 || err != nil {
			t.Errorf("%d usable, %v", n, err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := tokens.Check(t.Context(), text); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("after an hour: %v", err)
		}
		if n, err := tokens.Usable(t.Context()); n != 0 || err != nil {
			t.Errorf("%d usable, %v", n, err)
		}
		// Its name is free again.
		create(t, tokens, "short", Read, 0)
	})
}

// Writers that know nothing of each other lose nothing of each other.
func TestConcurrentWritersLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	const each = 12
	var wg sync.WaitGroup
	texts := make([][each]string, 2)
	for w := range texts {
		tokens := openTokens(t, path)
		create(t, tokens, fmt.Sprintf("gone-%d", w), Read, 0)
		for i := range each {
			wg.Go(func() {
				var err error
				if _, texts[w][i], err = tokens.Create(t.Context(), fmt.Sprintf("t-%d-%d", w, i), Read, 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if _, err := tokens.Revoke(t.Context(), fmt.Sprintf("gone-%d", w)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tokens := openTokens(t, path)
	for w := range texts {
		for i, text := range texts[w] {
			if p, err := tokens.Check(t.Context(), text); err != nil || p.Name != fmt.Sprintf("t-%d-%d", w, i) {
				t.Errorf("token %d of %d is %+v, %v", i, w, p, err)
			}
		}
	}
	if list, err := tokens.List(t.Context()); err != nil || len(list) != 2*each {
		t.Errorf("%d tokens, %v", len(list), err)
	}
}

func TestTokenNamesAndRoles(t *testing.T) {
	tokens := openTokens(t, filepath.Join(t.TempDir(), "tokens.json"))
	made, _ := create(t, tokens, "ci", Read, 0)
	for _, tc := range []struct {
		name string
		role Role
		ttl  time.Duration
		want string
	}{
		{"", Read, 0, "token name"}, {"-x", Read, 0, "token name"}, {"a b", Read, 0, "token name"}, {"a\nb", Read, 0, "token name"}, {strings.Repeat("a", 65), Read, 0, "token name"},
		{"x", "admin", 0, "role"}, {"x", "", 0, "role"}, {"x", Read, -1, "expire"}, {"ci", Read, 0, "already"}, {made.ID, Read, 0, "already"},
	} {
		if _, text, err := tokens.Create(t.Context(), tc.name, tc.role, tc.ttl); err == nil || text != "" || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q, %q, %s: %v", tc.name, tc.role, tc.ttl, err)
		}
	}
}

// A file that is damaged or open to others lets nobody in, says so by name and is
// never overwritten.
func TestTokenFilesThatAreNotRight(t *testing.T) {
	const token = `{"id":"abcdefgh","name":"a","role":"read","created":"2026-01-01T00:00:00Z","sha256":"` + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + `"}`
	file := func(tokens string) string { return `{"version":1,"tokens":[` + tokens + `]}` }
	with := func(old, new string) string { return file(strings.Replace(token, old, new, 1)) }
	for name, tc := range map[string]struct {
		text string
		mode os.FileMode
		want string // in the error; "": it is right
	}{
		"right":         {file(token), 0o600, ""},
		"for reading":   {file(token), 0o400, ""},
		"group":         {file(token), 0o640, "chmod 600"},
		"others":        {file(token), 0o604, "chmod 600"},
		"writable":      {file(token), 0o602, "chmod 600"},
		"empty":         {"", 0o600, "damaged"},
		"cut":           {file(token)[:60], 0o600, "damaged"},
		"two values":    {file(token) + file(token), 0o600, "damaged"},
		"unknown field": {with(`"id"`, `"more":1,"id"`), 0o600, "damaged"},
		"newer":         {`{"version":2,"tokens":[]}`, 0o600, "version 2"},
		"role":          {with(`"read"`, `"root"`), 0o600, `role "root"`},
		"id":            {with("abcdefgh", "ABC"), 0o600, `id "ABC"`},
		"name":          {with(`"a"`, `"a b"`), 0o600, `name "a b"`},
		"no hash":       {file(strings.Repeat(`{"id":"abcdefgh","name":"a","role":"read"}`, 1)), 0o600, "sha256"},
		"short hash":    {with("0123", ""), 0o600, "damaged"},
		"twice":         {file(token + "," + token), 0o600, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.json")
			if err := os.WriteFile(path, []byte(tc.text), tc.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tc.mode); err != nil {
				t.Fatal(err)
			}
			tokens, err := OpenTokens(t.Context(), statedir.Files(filepath.Dir(path)))
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("opened with %v, want %q and the path", err, tc.want)
			}
			if _, _, err := tokens.Create(t.Context(), "b", Read, 0); err == nil {
				t.Error("a token was made")
			}
			if _, err := tokens.Revoke(t.Context(), "a"); err == nil {
				t.Error("a token was revoked")
			}
			if _, err := tokens.Check(t.Context(), "agsk_abcdefgh_"+strings.Repeat("A", 43)); err == nil || errors.Is(err, ErrToken) {
				t.Errorf("checked with %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != tc.text {
				t.Errorf("the file was changed: %q, %v", after, err)
			}
		})
	}
}

// A file that breaks while the scheduler runs lets nobody in until it is mended.
func TestTokenFileThatBreaksAndIsMended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	synctest.Test(t, func(t *testing.T) {
		tokens := openTokens(t, path)
		_, text := create(t, tokens, "ci", Read, 0)
		for _, broken := range []func() error{
			func() error { return os.Chmod(path, 0o644) },
			func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		} {
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := broken(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookEvery)
			if _, err := tokens.Check(t.Context(), text); err == nil || errors.Is(err, ErrToken) {
				t.Errorf("broken: %v", err)
			}
			if err := errors.Join(os.WriteFile(path, good, 0o600), os.Chmod(path, 0o600)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(lookEvery)
			if _, err := tokens.Check(t.Context(), text); err != nil {
				t.Errorf("mended: %v", err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		if _, err := tokens.Check(t.Context(), text); !errors.Is(err, ErrToken) {
			t.Errorf("removed: %v", err)
		}
	})
}
