package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

// ErrToken is wrapped by errors about a token that does not let anybody in: it is
// unknown, revoked, expired, or its secret is wrong.
var ErrToken = errors.New("the token is not valid")

// ErrNoToken is wrapped when there is no token to revoke.
var ErrNoToken = errors.New("no such token")

// Token is what is known of a token, without its secret.
type Token struct {
	ID      string    `json:"id"` // 8 characters a to z and 2 to 7
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"` // zero: never
	// LastUsed is known to the process that checked it, since it began.
	LastUsed time.Time `json:"last_used,omitzero"`
}

// Expired reports whether the token lets nobody in any more at now.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Tokens are the tokens of a scheduler, or of several that share a store: any number
// of processes may change them at once. It is safe for concurrent use.
type Tokens struct {
	compare func(a, b []byte) int // subtle.ConstantTimeCompare

	mu   sync.Mutex // guards what follows
	doc  document
	byID map[string]record
	err  error                // why they are not known
	used map[string]time.Time // by id
}

// OpenTokens returns the tokens of the document TokensFile, which need not be there. An
// error names it: it is open to others, or damaged. It is never replaced then.
func OpenTokens(ctx context.Context, docs statedir.Documents) (*Tokens, error) {
	t := &Tokens{doc: document{docs: docs, name: statedir.TokensFile}, compare: subtle.ConstantTimeCompare, used: map[string]time.Time{}}
	return t, t.refresh(ctx)
}

// refresh reads the document if it has changed. t.mu is held, or nobody else knows t.
func (t *Tokens) refresh(ctx context.Context) error {
	text, changed, err := t.doc.look(ctx)
	if !changed {
		return t.err
	}
	var list []record
	if err == nil {
		list, err = parseTokens(text, t.doc.where())
	} else {
		err = fmt.Errorf("read tokens: %w", err)
	}
	t.err, t.byID = err, make(map[string]record, len(list))
	for _, r := range list {
		t.byID[r.ID] = r
	}
	for id := range t.used {
		if _, ok := t.byID[id]; !ok && err == nil {
			delete(t.used, id)
		}
	}
	return t.err
}

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

const tokenPrefix = "agsk_"

// Create makes a token that is valid for ttl, or for ever if that is 0. text, which
// is agsk_ID_SECRET, is not kept and cannot be had again. When it returns nil the
// token is durable. A name is that of one token at most; one that has expired gives
// its name away.
func (t *Tokens) Create(ctx context.Context, name string, role Role, ttl time.Duration) (tok Token, text string, err error) {
	if !tokenName.MatchString(name) {
		return tok, "", fmt.Errorf("token name %q: want 1 to 64 letters, digits, dots, underscores, at signs and hyphens, a letter or a digit first", name)
	}
	if _, err := ParseTokenRole(string(role)); err != nil {
		return tok, "", err
	}
	if ttl < 0 {
		return tok, "", fmt.Errorf("a token cannot expire in %s, want a length of time, or 0 for never", ttl)
	}
	secret := newSecret()
	err = t.change(ctx, func(list []record) ([]record, error) {
		now := time.Now().UTC().Round(0)
		list = slices.DeleteFunc(list, func(r record) bool { return r.Name == name && r.Expired(now) })
		for _, r := range list {
			if r.Name == name || r.ID == name {
				return nil, fmt.Errorf("there is a token %s already (id %s); `scheduler token revoke %s` ends it, or choose another name", name, r.ID, name)
			}
		}
		tok = Token{ID: newTokenID(list), Name: name, Role: role, Created: now.Truncate(time.Second)}
		if ttl > 0 {
			tok.Expires = now.Add(ttl)
		}
		return append(list, record{Token: tok, Hash: digestOf(secret)}), nil
	})
	if err != nil {
		return Token{}, "", err
	}
	return tok, tokenPrefix + tok.ID + "_" + secret, nil
}

// newTokenID returns an id that none of the list has as its id or its name.
func newTokenID(list []record) string {
	for {
		b := make([]byte, 5)
		rand.Read(b) //nolint:errcheck // it never fails
		id := strings.ToLower(base32.StdEncoding.EncodeToString(b))
		if !slices.ContainsFunc(list, func(r record) bool { return r.ID == id || r.Name == id }) {
			return id
		}
	}
}

// List returns the tokens, the oldest first, expired ones too.
func (t *Tokens) List(ctx context.Context) ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.refresh(ctx); err != nil {
		return nil, err
	}
	list := make([]Token, 0, len(t.byID))
	for _, r := range t.byID {
		r.LastUsed = t.used[r.ID]
		list = append(list, r.Token)
	}
	slices.SortFunc(list, func(a, b Token) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list, nil
}

// Revoke ends the token that ref, an id or a name, is of. No request that begins
// 250 ms later is let in by it, in no process. The error wraps ErrNoToken if there
// is none.
func (t *Tokens) Revoke(ctx context.Context, ref string) (Token, error) {
	var gone Token
	err := t.change(ctx, func(list []record) ([]record, error) {
		at := slices.IndexFunc(list, func(r record) bool { return r.ID == ref || r.Name == ref })
		if at < 0 {
			return nil, fmt.Errorf("%w: %s; `scheduler token ls` lists them", ErrNoToken, ref)
		}
		gone = list[at].Token
		return slices.Delete(list, at, at+1), nil
	})
	return gone, err
}

// change replaces the tokens by what f makes of them as they are now.
func (t *Tokens) change(ctx context.Context, f func([]record) ([]record, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := statedir.Change(ctx, t.doc.docs, t.doc.name, func(old []byte) ([]byte, error) {
		list, err := parseTokens(old, t.doc.where())
		if err != nil {
			return nil, err
		}
		if list, err = f(list); err != nil {
			return nil, err
		}
		return encodeTokens(list)
	})
	if err != nil {
		return err
	}
	return t.refresh(ctx)
}

// Check returns who has the token. The error wraps ErrToken if it lets nobody in;
// any other is about where the tokens are kept.
//
// An unknown id takes the same steps as a wrong secret, so that the time that an
// answer takes does not tell which ids there are.
func (t *Tokens) Check(ctx context.Context, text string) (Principal, error) {
	id, sum, ok := splitToken(text)
	if !ok {
		return Principal{}, fmt.Errorf("%w: it has not the form %sID_SECRET", ErrToken, tokenPrefix)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doc.due() {
		t.refresh(ctx) //nolint:errcheck // t.err
	}
	r, ok := t.match(id, sum)
	if !ok && t.err == nil { // it may have been made just now
		if t.doc.missable() {
			t.refresh(ctx) //nolint:errcheck // t.err
		}
		r, ok = t.match(id, sum)
	}
	if t.err != nil {
		return Principal{}, t.err
	}
	if !ok {
		return Principal{}, fmt.Errorf("%w: it is unknown or was revoked", ErrToken)
	}
	now := time.Now()
	if r.Expired(now) {
		return Principal{}, fmt.Errorf("%w: it expired at %s", ErrToken, r.Expires.UTC().Format(time.RFC3339))
	}
	t.used[r.ID] = now.UTC().Round(0)
	return Principal{Name: r.Name, Role: r.Role, Door: TCP}, nil
}

// match compares with a hash whether or not the id is known.
func (t *Tokens) match(id string, sum digest) (record, bool) {
	r, known := t.byID[id] // for an unknown id a hash of zeros
	same := t.compare(r.Hash[:], sum[:]) == 1
	return r, known && same
}

// splitToken returns the id of a token and the hash of its secret.
func splitToken(text string) (id string, sum digest, ok bool) {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(rest) != tokenIDLength+1+secretLength || rest[tokenIDLength] != '_' {
		return "", digest{}, false
	}
	return rest[:tokenIDLength], digestOf(rest[tokenIDLength+1:]), true
}

// Usable returns how many tokens let somebody in now.
func (t *Tokens) Usable(ctx context.Context) (int, error) {
	list, err := t.List(ctx)
	n := 0
	for i := range list {
		if !list[i].Expired(time.Now()) {
			n++
		}
	}
	return n, err
}
