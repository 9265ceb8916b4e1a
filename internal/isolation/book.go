package isolation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// Waiting returns what a job waits for that the isolation keeps from running.
func (i Isolation) Waiting() job.Waiting {
	text, _, _ := strings.Cut(i.Message, "\n")
	w := job.Waiting{Reason: job.WaitIsolation, Text: string(i.Scope) + ": " + text}
	switch i.Cause {
	case CausePaused:
		w.Reason, w.Text = job.WaitPause, string(i.Scope)+strings.TrimPrefix(text, "paused by an operator")
	case CauseUsageLimit:
		w.Reason = job.WaitUsageLimit
	}
	return w
}

// outlasts reports whether i ends after o.
func (i Isolation) outlasts(o Isolation) bool {
	return !o.Until.IsZero() && (i.Until.IsZero() || i.Until.After(o.Until))
}

// Book is what is out of use, at most one entry a scope. Its JSON form is the
// list, so that it can be kept over a restart. The zero value is empty, and it
// is safe for concurrent use.
//
// Cool-downs are compared as time.Time does it: within a process they follow
// the monotonic clock, whatever the wall clock does, after a restart the wall
// clock.
type Book struct {
	mu      sync.Mutex
	list    []Isolation // sorted by compareScopes
	version uint64      // of the list: counts its changes
}

// Apply isolates the scope of fresh from now on, for as long as from its Since to
// its Until, and reports whether that changed the book, so that it is to be
// stored. Of two isolations of one scope the one that lasts longer stays. What is
// only to be told (Notify) isolates nothing.
func (s *Book) Apply(now time.Time, fresh Isolation) bool {
	if fresh.Action == Notify {
		return false
	}
	// Since and Until may be by a wall clock that was set meanwhile, and carry no
	// monotonic reading once they were in UTC or in JSON.
	if !fresh.Until.IsZero() {
		fresh.Until = now.Add(max(fresh.Until.Sub(fresh.Since), 0))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.list, fresh.Scope, func(i Isolation, scope Scope) int { return compareScopes(i.Scope, scope) })
	if !found {
		s.list = slices.Insert(s.list, at, fresh)
		s.version++
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
	s.version++
	return true
}

// Replace makes the book hold list; of two isolations of one scope, the one that
// lasts longer.
func (s *Book) Replace(list []Isolation) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Isolation) int {
		switch {
		case a.Scope != b.Scope:
			return compareScopes(a.Scope, b.Scope)
		case a.outlasts(b):
			return -1
		case b.outlasts(a):
			return 1
		}
		return 0
	})
	list = slices.CompactFunc(list, func(a, b Isolation) bool { return a.Scope == b.Scope })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
	s.version++
}

// Lift ends an isolation, as an operator asks; false if there is none.
func (s *Book) Lift(scope Scope) (Isolation, bool) {
	return s.lift(scope, func(Cause) bool { return true })
}

// Settle ends an isolation whose cause is over; false if there is none with that cause.
func (s *Book) Settle(scope Scope, cause Cause) (Isolation, bool) {
	return s.lift(scope, func(c Cause) bool { return c == cause })
}

func (s *Book) lift(scope Scope, caused func(Cause) bool) (Isolation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, i := range s.list {
		if i.Scope == scope && caused(i.Cause) {
			s.list = slices.Delete(s.list, n, n+1)
			s.version++
			return i, true
		}
	}
	return Isolation{}, false
}

// Expire removes the isolations whose cool-down has ended, and returns them.
func (s *Book) Expire(now time.Time) []Isolation {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gone []Isolation
	s.list = slices.DeleteFunc(s.list, func(i Isolation) bool {
		if i.over(now) {
			gone = append(gone, i)
		}
		return i.over(now)
	})
	if len(gone) > 0 {
		s.version++
	}
	return gone
}

// List returns what is out of use at now: the global one first, then nodes with what is so on
// them alone, triggers, kinds and workspaces.
func (s *Book) List(now time.Time) []Isolation {
	list, _ := s.Versioned(now)
	return list
}

// Versioned is List with the book's version: of two lists, the one with the higher
// version is the later.
func (s *Book) Versioned(now time.Time) ([]Isolation, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.list), func(i Isolation) bool { return i.over(now) }), s.version
}

// Blocked returns the isolation that keeps r from beginning at now, the widest if
// there are several.
func (s *Book) Blocked(r Run, now time.Time) (Isolation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.list {
		if !i.over(now) && i.Scope.Touches(r) {
			return i, true
		}
	}
	return Isolation{}, false
}

// ForHost returns what of a list the cores of a host have to enforce, a node's or, with "", the scheduler's own: what
// isolates that node isolates all that they could run, what is isolated on it is so for them, and other nodes are
// nothing to them.
func ForHost(node string, list []Isolation) []Isolation {
	var mine []Isolation
	for _, i := range list {
		if name, what, ok := i.Scope.Host(); ok {
			if name != node {
				continue
			}
			if i.Scope = what; what == Global {
				i.Action = SafeStop
			}
		}
		mine = append(mine, i)
	}
	return mine
}

// MarshalJSON writes the list.
func (s *Book) MarshalJSON() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(s.list)
}

// UnmarshalJSON replaces what is there by a list that MarshalJSON wrote.
func (s *Book) UnmarshalJSON(text []byte) error {
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
			return fmt.Errorf("read isolations: %s is listed twice", list[n].Scope)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
	s.version++
	return nil
}

// compareScopes orders the wide before the narrow: global, node, trigger, worker, workspace.
// The words happen to sort so.
func compareScopes(a, b Scope) int { return cmp.Compare(a, b) }
