package scheduler

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// shares is a ledger with runs on two cores.
type shares struct {
	*testing.T
	*ledger
	cores [2]*supervisor.Core
	on    map[job.ID]*supervisor.Core
	runs  map[job.ID]*schedule.Run
}

// sharesTest plays with a ledger in virtual time.
func sharesTest(t *testing.T, play func(s *shares)) {
	synctest.Test(t, func(t *testing.T) {
		s := &shares{T: t, cores: [2]*supervisor.Core{{}, {}}, on: map[job.ID]*supervisor.Core{}, runs: map[job.ID]*schedule.Run{}}
		s.ledger = newLedger(func(c *supervisor.Core, id job.ID, attempt int) (*schedule.Run, error) {
			if r := s.runs[id]; r != nil && r.Attempt == attempt && s.on[id] == c {
				return r, nil
			}
			return nil, errors.New("it is over")
		})
		defer s.close()
		play(s)
	})
}

// has puts the first attempt of a job on a core.
func (s *shares) has(core int, id job.ID) *schedule.Run {
	r := &schedule.Run{Entry: queue.Entry{ID: id, Spec: job.Spec{Tenant: "t"}}, Attempt: 1}
	s.on[id], s.runs[id] = s.cores[core], r
	return r
}

func (s *shares) admits(id job.ID) *ipc.Rejection {
	s.Helper()
	got, err := s.admit(s.Context(), s.on[id], ipc.SharePermit{Job: id, Attempt: 1, Worker: "codex", Model: "openai/gpt"})
	if err != nil {
		s.Fatal(err)
	}
	return got.Rejection
}

// dollars is a request whose worst case costs so many US dollars.
func dollars(usd float64) ipc.Demand {
	n := int64(math.Round(usd * 1000))
	return ipc.Demand{Model: "openai/gpt", Output: n, Beside: n, Least: n, Price: &job.Price{Output: 1000}}
}

func (s *shares) reserves(id job.ID, n int64, usd float64) ipc.ReserveResult {
	s.Helper()
	got, err := s.reserve(s.Context(), s.on[id], ipc.Reserve{Job: id, Attempt: 1, ID: n, Demand: dollars(usd)})
	if err != nil {
		s.Fatal(err)
	}
	return got
}

func (s *shares) releases(id job.ID, n int64, usd float64) {
	s.Helper()
	if _, err := s.release(s.Context(), s.on[id], ipc.Release{Job: id, Attempt: 1, ID: n, Spent: job.Usage{CostUSD: usd}}); err != nil {
		s.Fatal(err)
	}
}

// spent checks what is booked in the only window.
func (s *shares) spent(when string, want float64) {
	s.Helper()
	if got := s.gate.Windows()[0].SpentUSD(); math.Abs(got-want) > 1e-9 {
		s.Errorf("%s: %g US dollars are booked, want %g", when, got, want)
	}
}

func window(usd float64) []ipc.CostWindow {
	return []ipc.CostWindow{{Tenant: "t", Window: job.Duration(time.Hour), MaxUSD: usd}}
}

// TestLedgerRates: permits of two cores count in one rate, and those that were not used do not.
func TestLedgerRates(t *testing.T) {
	sharesTest(t, func(s *shares) {
		s.configure(Rates{Workers: map[job.WorkerKind]permit.Rate{"codex": {PerMinute: 2}}}, nil)
		for i, id := range []job.ID{"a", "b", "c"} {
			s.has(i%2, id)
		}
		for _, id := range []job.ID{"a", "b", "b"} { // asked for again, it is the same permit
			if no := s.admits(id); no != nil {
				s.Fatalf("%s is refused: %+v", id, no)
			}
		}
		no := s.admits("c")
		if no == nil || no.Reason != job.RateLimited || no.Waiting != job.WaitRate || no.RetryAfterMS != 30_000 {
			s.Fatalf("the third is answered %+v, want RATE_LIMIT for 30 s", no)
		}
		if _, err := s.back(s.Context(), s.cores[1], ipc.SharePermit{Job: "b", Attempt: 1, Worker: "codex", Model: "openai/gpt"}); err != nil {
			s.Fatal(err)
		}
		if no := s.admits("c"); no != nil {
			s.Errorf("refused though one was given back: %+v", no)
		}
		s.begun(s.runs["a"])
		delete(s.runs, "a")
		delete(s.runs, "c") // it never began: its core has died
		s.keep(nil)
		if s.admits("b") != nil {
			s.Error("what the dead core did not use is not back")
		}
		if s.has(0, "d"); s.admits("d") == nil {
			s.Error("what a run used is back")
		}
		if _, err := s.admit(s.Context(), s.cores[0], ipc.SharePermit{Job: "b", Attempt: 1, Worker: "codex"}); err == nil {
			s.Error("a core asks for the run of another one")
		}
	})
}

// TestLedgerWindow: what requests on two cores reserve counts in one window.
func TestLedgerWindow(t *testing.T) {
	sharesTest(t, func(s *shares) {
		s.configure(Rates{}, window(1))
		s.has(0, "a")
		s.has(1, "b")
		if s.admits("a") != nil || s.admits("b") != nil {
			s.Fatal("refused")
		}
		if got := s.reserves("a", 1, 0.6); got.Output != 600 || got.Ledger != s.name {
			s.Fatalf("answered %+v", got)
		}
		if got := s.reserves("a", 1, 0.6); got.Output != 600 {
			s.Fatalf("asked again, answered %+v", got)
		}
		begun := time.Now()
		if got := s.reserves("b", 1, 0.6); !got.Pending || time.Since(begun) != holdShare {
			s.Fatalf("answered %+v after %s, want to wait for %s", got, time.Since(begun), holdShare)
		}
		s.releases("a", 1, 0.2)
		if got := s.reserves("b", 1, 0.6); got.Output != 600 {
			s.Fatalf("answered %+v when there is room", got)
		}
		s.spent("a's request has ended", 0.2)
		s.charged(&schedule.Charged{Run: s.runs["a"], USD: 0.2, Total: 0.2})
		s.spent("a has reported it", 0.2)
		s.charged(&schedule.Charged{Run: s.runs["b"], USD: 0.5, Total: 0.5})
		s.spent("b has reported what its request costs before it has ended", 0.7)
		s.releases("b", 1, 0.5)
		s.spent("b's request has ended", 0.7)
		s.charged(&schedule.Charged{Run: s.runs["b"], USD: 0.1, Total: 0.6})
		s.spent("b spends by itself", 0.8)
		if got := s.reserves("a", 2, 0.3); got.Stop == nil || got.Stop.Limit != string(permit.LimitWindow) || got.Stop.RetryAfterMS <= 0 {
			s.Errorf("answered %+v, want to be stopped until the window has room", got)
		}
		s.charged(&schedule.Charged{Run: s.has(0, "unknown"), USD: 0.2, Total: 0.2})
		s.spent("one spends that has reserved nothing", 1)
		if s.has(1, "c"); s.admits("c") == nil {
			s.Error("a permit although the window is full")
		}
	})
}

// TestLedgerRunsEnd: what a run that is gone has reserved is free, and who waits for it goes on.
func TestLedgerRunsEnd(t *testing.T) {
	sharesTest(t, func(s *shares) {
		s.configure(Rates{}, window(1))
		s.has(0, "a")
		b := s.has(1, "b")
		s.reserves("a", 1, 1)
		if got := s.reserves("b", 1, 1); !got.Pending {
			s.Fatalf("answered %+v", got)
		}
		delete(s.runs, "a")
		s.keep([]*schedule.Run{b})
		if got := s.reserves("b", 1, 1); got.Output != 1000 {
			s.Errorf("answered %+v, want room", got)
		}
		if got, err := s.reserve(s.Context(), s.cores[0], ipc.Reserve{Job: "a", Attempt: 1, ID: 2, Demand: dollars(0.1)}); err != nil || got.Refused == "" {
			s.Errorf("a run that is over is answered %+v, %v", got, err)
		}
		if got := s.reserves("b", 2, 1); !got.Pending {
			s.Fatalf("answered %+v", got)
		}
		s.releases("b", 2, 0) // it does not wait any more
		if got := s.reserves("b", 3, 1); !got.Pending {
			s.Errorf("answered %+v", got)
		}
	})
}

// TestLedgerTakesOver: what an earlier scheduler has allowed is reserved in the next one, whatever room there is, and what
// its runs had spent before is not booked again.
func TestLedgerTakesOver(t *testing.T) {
	sharesTest(t, func(s *shares) {
		recalled := window(1)
		recalled[0].Spent = []ipc.Spending{{AgoMS: 1000, USD: 0.3}}
		s.configure(Rates{}, recalled)
		s.has(0, "a")
		s.has(1, "b")
		for n := range int64(2) {
			if _, err := s.reserve(s.Context(), s.cores[0], ipc.Reserve{Job: "a", Attempt: 1, ID: 1 + n, Demand: dollars(0.5), Running: true}); err != nil {
				s.Fatal(err)
			}
		}
		if got := s.reserves("b", 1, 0.2); !got.Pending {
			s.Fatalf("answered %+v, want to wait", got)
		}
		s.releases("a", 1, 0.1)
		s.charged(&schedule.Charged{Run: s.runs["a"], USD: 0.1, Total: 0.4})
		s.spent("a request has ended and was reported", 0.4)
		s.releases("a", 2, 0.2)
		s.spent("the other has ended, too", 0.6)
		if got := s.reserves("b", 1, 0.2); got.Output != 200 {
			s.Errorf("answered %+v, want room", got)
		}
	})
}

// TestLedgerAnswers: requests that wait do not keep a core's other questions from being answered, and are bounded.
func TestLedgerAnswers(t *testing.T) {
	sharesTest(t, func(s *shares) {
		s.configure(Rates{}, window(1))
		s.has(0, "a")
		s.has(0, "b")
		s.reserves("a", 1, 1)
		for n := range int64(heldShares) {
			go s.reserve(s.Context(), s.cores[0], ipc.Reserve{Job: "b", Attempt: 1, ID: 1 + n, Demand: dollars(1)}) //nolint:errcheck // it waits
		}
		synctest.Wait()
		begun := time.Now()
		if got := s.reserves("b", heldShares+1, 1); !got.Pending || got.WaitMS != pauseShare.Milliseconds() || time.Since(begun) != 0 {
			s.Errorf("answered %+v after %s, want to be told at once to ask again", got, time.Since(begun))
		}
		for n := int64(heldShares + 2); n <= ipc.MaxReservations; n++ {
			s.reserves("b", n, 1)
		}
		s.reserves("b", ipc.MaxReservations+1, 1)
		s.mu.Lock()
		if n := len(s.ledger.runs["b"].pledges); n != ipc.MaxReservations {
			s.Errorf("%d requests wait, want %d at most", n, ipc.MaxReservations)
		}
		s.mu.Unlock()
		time.Sleep(holdShare)
		for field, bad := range map[string]ipc.Demand{
			"demand.input is -1": {Input: -1}, "demand.output is 9223372036854775807": {Output: math.MaxInt64},
			"demand.price has -1": {Price: &job.Price{Input: -1}}, "demand.price has NaN": {Price: &job.Price{Output: math.NaN()}},
		} {
			_, err := s.reserve(s.Context(), s.cores[0], ipc.Reserve{Job: "a", Attempt: 1, ID: 9, Demand: bad})
			if want := fmt.Sprintf("%s, want", field); err == nil || !strings.Contains(err.Error(), want) {
				s.Errorf("%v, want %q", err, want)
			}
		}
	})
}
