package access

import (
	"cmp"
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
	// usedEvery is how exactly the file says when a session was used last, so that
	// not every request is a write.
	usedEvery = 10 * time.Minute
)

var errSession = errors.New("the session is unknown or over")

// Sessions are the browsers that are logged in. They are kept in a file, as hashes,
// so that they stay so over a restart. One process at a time uses the file. It is
// safe for concurrent use.
type Sessions struct {
	path string

	mu   sync.Mutex
	list map[digest]*session
}

type session struct {
	Hash    digest    `json:"sha256"` // of the cookie's value
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`

	stored time.Time // what the file has as Used
}

func (s *session) over(now time.Time) bool {
	return !now.Before(s.Created.Add(sessionLasts)) || !now.Before(s.Used.Add(sessionIdle))
}

// sessionFile is the content of sessions.json.
type sessionFile struct {
	Sessions []*session `json:"sessions"`
}

// OpenSessions reads the file at path, which need not be there. An error names the
// file: it is open to others, or damaged.
func OpenSessions(path string) (*Sessions, error) {
	s := &Sessions{path: path, list: map[digest]*session{}}
	text, at, err := readPrivate(path)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	if at == (stamp{}) {
		return s, nil
	}
	var f sessionFile
	if err := decodeStrict(text, &f); err != nil {
		return nil, damagedSessions(path, err)
	}
	for i, x := range f.Sessions {
		if x == nil || x.Hash == (digest{}) {
			return nil, damagedSessions(path, fmt.Errorf("session %d has no sha256", i))
		}
		if _, err := ParseRole(string(x.Role)); err != nil {
			return nil, damagedSessions(path, fmt.Errorf("session %d: %w", i, err))
		}
		x.stored = x.Used
		s.list[x.Hash] = x
	}
	return s, nil
}

func damagedSessions(path string, err error) error {
	return fmt.Errorf("%s is damaged: %w; remove it, and log in again with `scheduler ui`", path, err)
}

// create begins a session and returns the secret that stands for it.
func (s *Sessions) create(name string, role Role) (secret string, err error) {
	secret = newSecret()
	now := time.Now().UTC().Round(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.list, func(_ digest, x *session) bool { return x.over(now) })
	for len(s.list) >= maxSessions {
		oldest := slices.MinFunc(slices.Collect(maps.Values(s.list)), func(a, b *session) int { return a.Used.Compare(b.Used) })
		delete(s.list, oldest.Hash)
	}
	x := &session{Hash: digestOf(secret), Name: name, Role: role, Created: now, Used: now}
	s.list[x.Hash] = x
	if err := s.store(); err != nil {
		delete(s.list, x.Hash)
		return "", err
	}
	return secret, nil
}

// check returns whose session it is. With touch it counts as a use of it.
func (s *Sessions) check(secret string, touch bool) (Principal, error) {
	if len(secret) != secretLength {
		return Principal{}, errSession
	}
	now := time.Now().UTC().Round(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.list[digestOf(secret)]
	if !ok || x.over(now) {
		return Principal{}, errSession
	}
	if touch {
		x.Used = now
		if now.Sub(x.stored) >= usedEvery {
			x.stored = now // if it fails too, so that a full disk is not tried each time
			s.store()      //nolint:errcheck // the session is over the sooner after a restart, no more
		}
	}
	return Principal{Name: x.Name, Role: x.Role, Door: Browser}, nil
}

// end forgets a session. It is over at once, also if it cannot be stored.
func (s *Sessions) end(secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := digestOf(secret)
	if s.list[hash] == nil {
		return nil
	}
	delete(s.list, hash)
	return s.store()
}

// store writes the file. s.mu is held.
func (s *Sessions) store() error {
	list := slices.SortedFunc(maps.Values(s.list), func(a, b *session) int {
		return cmp.Or(a.Created.Compare(b.Created), slices.Compare(a.Hash[:], b.Hash[:]))
	})
	text, err := json.MarshalIndent(sessionFile{Sessions: list}, "", "  ")
	if err != nil {
		return err
	}
	if err := statedir.WriteFile(s.path, append(text, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	for _, x := range list {
		x.stored = x.Used
	}
	return nil
}
