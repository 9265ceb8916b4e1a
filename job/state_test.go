package job

import (
	"errors"
	"strings"
	"testing"
)

// TestEntryMoves walks every pair of entry states; what is not listed here is illegal.
func TestEntryMoves(t *testing.T) {
	legal := map[EntryState][]EntryState{
		Queued:     {Dispatched, Expired, Cancelled},
		Dispatched: {Completed, Queued},
	}
	walk(t, EntryStates(), legal, EntryState.CheckMove, EntryState.Terminal)
}

// TestRunMoves walks every pair of run states, by the names of the moves.
func TestRunMoves(t *testing.T) {
	moves := []struct {
		name     string
		from, to RunState
	}{
		{"assign", Pending, Running},
		{"ask for approval", Running, WaitingApproval},
		{"approve", WaitingApproval, Running},
		{"reject, retries left", WaitingApproval, Pending},
		{"reject, none left", WaitingApproval, RunFailed},
		{"checkpoint", Running, Checkpointed},
		{"next step", Checkpointed, Running},
		{"complete", Running, RunCompleted},
		{"fail", Running, RunFailed},
		{"cancel", Pending, RunCancelled},
		{"cancel", Running, RunCancelled},
		{"cancel", WaitingApproval, RunCancelled},
		{"cancel", Checkpointed, RunCancelled},
	}
	legal := map[RunState][]RunState{}
	for _, m := range moves {
		legal[m.from] = append(legal[m.from], m.to)
	}
	walk(t, RunStates(), legal, RunState.CheckMove, RunState.Terminal)
}

func walk[S ~string](t *testing.T, states []S, legal map[S][]S, check func(S, S) error, terminal func(S) bool) {
	t.Helper()
	allowed := map[[2]S]bool{}
	for from, list := range legal {
		for _, to := range list {
			allowed[[2]S{from, to}] = true
		}
	}
	for _, from := range states {
		if want := len(legal[from]) == 0; terminal(from) != want {
			t.Errorf("%s is terminal: %v, want %v", from, !want, want)
		}
		for _, to := range states {
			err := check(from, to)
			switch {
			case allowed[[2]S{from, to}]:
				if err != nil {
					t.Errorf("%s to %s: %v, want it to be legal", from, to, err)
				}
			case !errors.Is(err, ErrIllegalTransition):
				t.Errorf("%s to %s: got error %v, want %v", from, to, err, ErrIllegalTransition)
			case !strings.Contains(err.Error(), string(from)) || !strings.Contains(err.Error(), string(to)):
				t.Errorf("%s to %s: error %q does not name both", from, to, err)
			}
		}
		for _, odd := range []S{"", "Queued", "unknown"} {
			if err := check(from, odd); !errors.Is(err, ErrIllegalTransition) {
				t.Errorf("%s to %q: got error %v, want %v", from, odd, err, ErrIllegalTransition)
			}
			if err := check(odd, from); !errors.Is(err, ErrIllegalTransition) {
				t.Errorf("%q to %s: got error %v, want %v", odd, from, err, ErrIllegalTransition)
			}
			if terminal(odd) {
				t.Errorf("unknown state %q is terminal", odd)
			}
		}
	}
}
