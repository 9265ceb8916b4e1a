package access

import (
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	linkLasts = 5 * time.Minute
	maxLinks  = 100
)

// Link begins a browser session, once.
type Link struct {
	Code    string // secret
	Role    Role
	Expires time.Time
}

// Path returns what stands behind the scheduler's address in the link's URL.
func (l Link) Path() string { return "/login?code=" + url.QueryEscape(l.Code) }

// Links are the links that nobody has used yet, at most 100; one more replaces the
// oldest. They end with the process. It is safe for concurrent use, and its zero
// value is empty.
type Links struct {
	mu   sync.Mutex
	list []link // the oldest first
}

type link struct {
	hash    digest
	name    string
	role    Role
	expires time.Time
}

// NewLink returns a link for a session with this role, valid for 5 minutes. name is
// that of the session's principal: who asked for it.
func (l *Links) NewLink(name string, role Role) (Link, error) {
	if _, err := ParseRole(string(role)); err != nil {
		return Link{}, err
	}
	out := Link{Code: newSecret(), Role: role, Expires: time.Now().Add(linkLasts).UTC().Round(0)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune(time.Now())
	if len(l.list) >= maxLinks {
		l.list = slices.Delete(l.list, 0, len(l.list)-maxLinks+1)
	}
	l.list = append(l.list, link{hash: digestOf(out.Code), name: name, role: role, expires: out.Expires})
	return out, nil
}

// take uses a link up.
func (l *Links) take(code string) (link, bool) {
	hash := digestOf(code)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune(time.Now())
	at := slices.IndexFunc(l.list, func(x link) bool { return x.hash == hash })
	if at < 0 {
		return link{}, false
	}
	found := l.list[at]
	l.list = slices.Delete(l.list, at, at+1)
	return found, true
}

func (l *Links) prune(now time.Time) {
	l.list = slices.DeleteFunc(l.list, func(x link) bool { return !now.Before(x.expires) })
}
