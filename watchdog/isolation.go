package watchdog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Isolation is a scope that is out of use.
type Isolation struct {
	Scope   Scope     `json:"scope"`
	Cause   Cause     `json:"cause"`
	Message string    `json:"message"`
	Action  Remedy    `json:"action"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // zero: until an operator lifts it
}

// over reports whether the cool-down has ended.
func (i Isolation) over(now time.Time) bool { return !i.Until.IsZero() && !now.Before(i.Until) }

// outlasts reports whether i ends after o.
func (i Isolation) outlasts(o Isolation) bool {
	return !o.Until.IsZero() && (i.Until.IsZero() || i.Until.After(o.Until))
}

// isolationRetry is when to ask again about what only an operator lifts.
const isolationRetry = time.Minute

// Refuse returns the answer to a request that the isolation blocks at now.
func (i Isolation) Refuse(now time.Time) Decision {
	d := Decision{Action: Reject, Reason: job.FatalMode, RetryAfter: isolationRetry, Message: i.Message}
	if !i.Until.IsZero() {
		d.RetryAfter = max(i.Until.Sub(now), time.Second)
	}
	if _, ok := i.Scope.Worker(); ok {
		d.Reason = job.CircuitOpen
	} else if _, ok := i.Scope.Workspace(); ok {
		d.Reason = job.WorkspaceBusy
	}
	return d
}

// Isolations is the book of what is out of use, at most one entry a scope. Its
// JSON form is the list, so that it can be kept over a restart. The zero value
// is empty, and it is safe for concurrent use.
//
// Cool-downs are compared as time.Time does it: within a process they follow
// the monotonic clock, whatever the wall clock does, after a restart the wall
// clock.
type Isolations struct {
	mu   sync.Mutex
	list []Isolation // sorted by compareScopes
}

// Apply isolates the scope of e, and reports whether that changed the book, so
// that it is to be stored. Of two isolations of one scope the one that lasts
// longer stays.
func (s *Isolations) Apply(now time.Time, e Escalation) bool {
	if e.Action == Notify {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := Isolation{Scope: e.Scope, Cause: e.Cause, Message: e.Message, Action: e.Action, Since: now.UTC(), Until: e.Until}
	at, found := slices.BinarySearchFunc(s.list, e.Scope, func(i Isolation, scope Scope) int { return compareScopes(i.Scope, scope) })
	if !found {
		s.list = slices.Insert(s.list, at, fresh)
		return true
	}
	have := &s.list[at]
	switch {
	case have.over(now):
	case fresh.outlasts(*have):
		fresh.Since = have.Since
	default:
		return false
	}
	*have = fresh
	return true
}

// Lift ends an isolation, as an operator asks; false if there is none.
func (s *Isolations) Lift(scope Scope) (Isolation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, i := range s.list {
		if i.Scope == scope {
			s.list = slices.Delete(s.list, n, n+1)
			return i, true
		}
	}
	return Isolation{}, false
}

// Expire removes the isolations whose cool-down has ended, and returns them.
func (s *Isolations) Expire(now time.Time) []Isolation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []Isolation
	s.list = slices.DeleteFunc(s.list, func(i Isolation) bool {
		if i.over(now) {
			gone = append(gone, i)
		}
		return i.over(now)
	})
	return gone
}

// List returns what is out of use at now: the global one first, then kinds,
// then workspaces.
func (s *Isolations) List(now time.Time) []Isolation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.list), func(i Isolation) bool { return i.over(now) })
}

// Blocked returns the isolation that keeps a run of kind in workspace ("" if
// it has none) from beginning at now, the widest if there are several.
func (s *Isolations) Blocked(kind job.WorkerKind, workspace string, now time.Time) (Isolation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.list {
		if !i.over(now) && i.Scope.touches(kind, workspace) {
			return i, true
		}
	}
	return Isolation{}, false
}

// MarshalJSON writes the list.
func (s *Isolations) MarshalJSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(s.list)
}

// UnmarshalJSON replaces what is there by a list that MarshalJSON wrote.
func (s *Isolations) UnmarshalJSON(text []byte) error {
	var list []Isolation
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("read isolations: %w", err)
	}
	for n, i := range list {
		scope, err := ParseScope(string(i.Scope))
		if err != nil {
			return fmt.Errorf("read isolation %d: %w", n, err)
		}
		list[n].Scope = scope
	}
	slices.SortFunc(list, func(a, b Isolation) int { return compareScopes(a.Scope, b.Scope) })
	for n := 1; n < len(list); n++ {
		if list[n].Scope == list[n-1].Scope {
			return fmt.Errorf("read isolations: %s is there twice", list[n].Scope)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
	return nil
}

// compareScopes orders the wide before the narrow: global, worker, workspace.
// The three words happen to sort so.
func compareScopes(a, b Scope) int { return cmp.Compare(a, b) }
