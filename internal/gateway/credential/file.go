package credential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxLoginFile bounds a login's file, in bytes.
const maxLoginFile = 1 << 20

// tokens is what a login's file holds.
type tokens struct {
	kind                LoginKind
	access, refresh, id string
	account             string
	expires             time.Time // zero: not known
	text                []byte    // the file
}

// ends reports whether the access token is known to be over at a time.
func (t tokens) ends(at time.Time) bool { return !t.expires.IsZero() && !at.Before(t.expires) }

// codexFile is auth.json, as far as it is read:
//
//	{"tokens": {"id_token": …, "access_token": …, "refresh_token": …, "account_id": …}, "last_refresh": "2026-11-26T01:02:03Z"}
type codexFile struct {
	Tokens struct {
		ID      string `json:"id_token"`
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Account string `json:"account_id"`
	} `json:"tokens"`
}

// claudeFile is .credentials.json, as far as it is read. expiresAt is in milliseconds since 1970:
//
//	{"claudeAiOauth": {"accessToken": …, "refreshToken": …, "expiresAt": 1795654923000, "scopes": […]}}
type claudeFile struct {
	OAuth struct {
		Access  string `json:"accessToken"`
		Refresh string `json:"refreshToken"`
		Expires int64  `json:"expiresAt"`
	} `json:"claudeAiOauth"`
}

func readTokens(kind LoginKind, path string) (tokens, error) {
	file, err := os.Open(path)
	if err != nil {
		return tokens{}, fmt.Errorf("read the login: %w", err)
	}
	defer file.Close()
	t := tokens{kind: kind}
	if t.text, err = io.ReadAll(io.LimitReader(file, maxLoginFile)); err != nil {
		return tokens{}, fmt.Errorf("read the login: %w", err)
	}
	if kind == ClaudeLogin {
		var f claudeFile
		err = json.Unmarshal(t.text, &f)
		t.access, t.refresh = f.OAuth.Access, f.OAuth.Refresh
		if f.OAuth.Expires > 0 {
			t.expires = time.UnixMilli(f.OAuth.Expires)
		}
	} else {
		var f codexFile
		err = json.Unmarshal(t.text, &f)
		t.access, t.refresh, t.id, t.account = f.Tokens.Access, f.Tokens.Refresh, f.Tokens.ID, f.Tokens.Account
		t.expires = expiryOf(t.access)
	}
	switch {
	case err != nil:
		return tokens{}, fmt.Errorf("read the login: %s is not the JSON of a %s", path, kind)
	case t.access == "":
		return tokens{}, fmt.Errorf("read the login: %s holds no token of a subscription", path)
	}
	return t, nil
}

// expiryOf returns what a JSON Web Token says of its end (RFC 7519, section 4.1.4), zero if it is none. It is not verified: the
// provider does that.
func expiryOf(token string) time.Time {
	pieces := strings.Split(token, ".")
	if len(pieces) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(pieces[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(claims.Exp, 0)
}

// with returns the file with new tokens in it. All else stays, with fields that are not known here.
func (t tokens) with(got tokens, now time.Time) ([]byte, error) {
	whole := map[string]json.RawMessage{}
	if err := json.Unmarshal(t.text, &whole); err != nil {
		return nil, err
	}
	set := func(group string, values map[string]any) error {
		inner := map[string]json.RawMessage{}
		if err := json.Unmarshal(whole[group], &inner); err != nil {
			return err
		}
		for name, v := range values {
			inner[name] = mustJSON(v)
		}
		whole[group] = mustJSON(inner)
		return nil
	}
	var err error
	if t.kind == ClaudeLogin {
		values := map[string]any{"accessToken": got.access, "refreshToken": got.refresh}
		if !got.expires.IsZero() {
			values["expiresAt"] = got.expires.UnixMilli()
		}
		err = set("claudeAiOauth", values)
	} else {
		whole["last_refresh"] = mustJSON(now.UTC())
		err = set("tokens", map[string]any{"access_token": got.access, "refresh_token": got.refresh, "id_token": got.id})
	}
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(whole, "", "  ")
}

// lockFile takes the lock that the cores of this host refresh a login under: flock(2) on a file beside it, since the login itself
// is replaced. It is no lock of the vendors' programs.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	lock, err := os.OpenFile(path+".agentsched-lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the login: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = lock.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock the login: %w", err), lock.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("lock the login: %w", context.Cause(ctx)), lock.Close())
		}
	}
}

// replacement is a file that takes another's place at once and whole, with its mode and owner.
type replacement struct {
	file *os.File
	path string
}

func replaceFile(path string) (*replacement, error) {
	real, err := filepath.EvalSymlinks(path) // the file is replaced, not a link to it
	if err != nil {
		return nil, fmt.Errorf("write the login: %w", err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, fmt.Errorf("write the login: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(real), ".login-*")
	if err != nil {
		return nil, fmt.Errorf("write the login: %w", err)
	}
	r := &replacement{file, real}
	err = file.Chmod(info.Mode().Perm())
	if of, ok := info.Sys().(*syscall.Stat_t); ok && err == nil && int(of.Uid) != os.Geteuid() {
		err = file.Chown(int(of.Uid), int(of.Gid))
	}
	if err != nil {
		r.discard()
		return nil, fmt.Errorf("write the login: %w", err)
	}
	return r, nil
}

func (r *replacement) commit(text []byte) error {
	_, err := r.file.Write(text)
	if err == nil {
		err = r.file.Sync()
	}
	if err == nil {
		err = os.Rename(r.file.Name(), r.path)
	}
	if err != nil {
		return fmt.Errorf("write the login: %w", err)
	}
	return nil
}

// discard closes the file, and removes it unless it has taken the other's place.
func (r *replacement) discard() {
	_ = r.file.Close()
	_ = os.Remove(r.file.Name()) // gone after commit
}

// mustJSON marshals what this package made of strings, numbers and maps.
func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("credential: marshal %T: %v", v, err))
	}
	return text
}
