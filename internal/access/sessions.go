package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
)

const (
	sessionIdle  = 12 * time.Hour     // without a request
	sessionLasts = 7 * 24 * time.Hour // whatever happens
	maxSessions  = 1000
	// usedEvery is how exactly the document says when a session was used last, so that
	// not every request is a write.
	usedEvery = 10 * time.Minute
)

var errSession = errors.New("the session is unknown or over")

// Sessions are the browsers that are logged in. They are kept in a document, as hashes,
// so that they stay so over a restart. Several schedulers may share it: who logs in at
// one is known to all at once, and who logs out is not, 250 ms later. It is safe for
// concurrent use.
type Sessions struct {
	mu   sync.Mutex // guards what follows
	doc  document
	list map[digest]*session
	err  error // why they are not known
	// ended are over although the document has them still.
	ended map[digest]bool
}

type session struct {
	Hash    digest    `json:"sha256"` // of the cookie's value
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`

	stored time.Time // what the document has as Used
}

func (s *session) over(now time.Time) bool {
	return !now.Before(s.Created.Add(sessionLasts)) || !now.Before(s.Used.Add(sessionIdle))
}

// sessionFile is the content of sessions.json.
type sessionFile struct {
	Sessions []*session `json:"sessions"`
}

// OpenSessions reads the document SessionsFile, which need not be there. An error names
// it: it is open to others, or damaged.
func OpenSessions(ctx context.Context, docs statedir.Documents) (*Sessions, error) {
	s := &Sessions{doc: document{docs: docs, name: statedir.SessionsFile}, list: map[digest]*session{}, ended: map[digest]bool{}}
	return s, s.refresh(ctx)
}

// parseSessions reads what lies at where, of which an error says so; nil stands for none.
func parseSessions(text []byte, where string) (map[digest]*session, error) {
	list := map[digest]*session{}
	if text == nil {
		return list, nil
	}
	var f sessionFile
	if err := decodeStrict(text, &f); err != nil {
		return nil, damagedSessions(where, err)
	}
	for i, x := range f.Sessions {
		if x == nil || x.Hash == (digest{}) {
			return nil, damagedSessions(where, fmt.Errorf("session %d has no sha256", i))
		}
		if _, err := ParseRole(string(x.Role)); err != nil {
			return nil, damagedSessions(where, fmt.Errorf("session %d: %w", i, err))
		}
		x.stored = x.Used
		list[x.Hash] = x
	}
	return list, nil
}

func damagedSessions(where string, err error) error {
	return fmt.Errorf("%s is damaged: %w; remove it, and log in again with `scheduler ui`", where, err)
}

func encodeSessions(list map[digest]*session) ([]byte, error) {
	sorted := slices.SortedFunc(maps.Values(list), func(a, b *session) int {
		return cmp.Or(a.Created.Compare(b.Created), slices.Compare(a.Hash[:], b.Hash[:]))
	})
	text, err := json.MarshalIndent(sessionFile{Sessions: sorted}, "", "  ")
	return append(text, '\n'), err
}

// refresh reads the document if it has changed. s.mu is held, or nobody else knows s.
func (s *Sessions) refresh(ctx context.Context) error {
	text, changed, err := s.doc.look(ctx)
	if !changed {
		return s.err
	}
	var list map[digest]*session
	if err == nil {
		list, err = parseSessions(text, s.doc.where())
	} else {
		err = fmt.Errorf("read sessions: %w", err)
	}
	if s.err = err; err != nil {
		return err // s.list still says when they were used here
	}
	for hash := range s.ended {
		if list[hash] == nil {
			delete(s.ended, hash)
		}
	}
	s.join(list)
	s.list = list
	return nil
}

// join puts what is known here into a list that was read: what is over, and what was used
// later.
func (s *Sessions) join(list map[digest]*session) {
	for hash, x := range list {
		if s.ended[hash] {
			delete(list, hash)
		} else if here := s.list[hash]; here != nil && here.Used.After(x.Used) {
			x.Used = here.Used
		}
	}
}

// change replaces the sessions by what f makes of them as they are now. s.mu is held.
func (s *Sessions) change(ctx context.Context, f func(map[digest]*session)) error {
	ctx, cancel := s.doc.bound(ctx)
	defer cancel()
	err := statedir.Change(ctx, s.doc.docs, s.doc.name, func(old []byte) ([]byte, error) {
		list, err := parseSessions(old, s.doc.where())
		if err != nil {
			return nil, err
		}
		s.join(list)
		f(list)
		return encodeSessions(list)
	})
	if err != nil {
		return err
	}
	return s.refresh(ctx)
}

// create begins a session and returns the secret that stands for it.
func (s *Sessions) create(ctx context.Context, name string, role Role) (secret string, err error) {
	secret = newSecret()
	now := time.Now().UTC().Round(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.change(ctx, func(list map[digest]*session) {
		maps.DeleteFunc(list, func(_ digest, x *session) bool { return x.over(now) })
		for len(list) >= maxSessions {
			oldest := slices.MinFunc(slices.Collect(maps.Values(list)), func(a, b *session) int { return a.Used.Compare(b.Used) })
			delete(list, oldest.Hash)
		}
		x := &session{Hash: digestOf(secret), Name: name, Role: role, Created: now, Used: now}
		list[x.Hash] = x
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// check returns whose session it is. With touch it counts as a use of it. The error is
// errSession if it is nobody's; any other is about where the sessions are kept.
func (s *Sessions) check(ctx context.Context, secret string, touch bool) (Principal, error) {
	if len(secret) != secretLength {
		return Principal{}, errSession
	}
	hash, now := digestOf(secret), time.Now().UTC().Round(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doc.due() {
		s.refresh(ctx) //nolint:errcheck // s.err
	}
	if s.err == nil && s.list[hash] == nil && s.doc.missable() { // it may have begun just now
		s.refresh(ctx) //nolint:errcheck // s.err
	}
	if s.err != nil {
		return Principal{}, s.err
	}
	x := s.list[hash]
	if x == nil || x.over(now) {
		return Principal{}, errSession
	}
	if touch {
		x.Used = now
		if now.Sub(x.stored) >= usedEvery {
			x.stored = now // if it fails too, so that a full disk is not tried each time
			// The session is over the sooner after a restart or elsewhere, no more.
			s.change(ctx, func(map[digest]*session) {}) //nolint:errcheck // see above
		}
	}
	return Principal{Name: x.Name, Role: x.Role, Door: Browser}, nil
}

// end forgets a session. It is over here at once, also if that cannot be stored.
func (s *Sessions) end(ctx context.Context, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := digestOf(secret)
	if s.list[hash] == nil {
		return nil
	}
	delete(s.list, hash)
	s.ended[hash] = true
	return s.change(ctx, func(map[digest]*session) {})
}
