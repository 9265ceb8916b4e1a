package breaker_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small opens after two of three.
var small = breaker.Config{
	Window: job.Duration(10 * time.Second), BucketPeriod: job.Duration(2 * time.Second), MinRequests: 3, FailureRatio: 0.6,
	OpenFor: job.Duration(30 * time.Second), Probes: 1,
}

var (
	codex = job.Choice{Worker: "codex"}
	gpt   = job.Choice{Worker: "codex", Model: "gpt-5"}
	mini  = job.Choice{Worker: "codex", Model: "mini"}

	codexKey = breaker.Key{Worker: "codex"}
	gptKey   = breaker.Key{Worker: "codex", Model: "gpt-5"}
)

// bench is a set in a bubble, with verbs that fail the test.
type bench struct {
	*testing.T
	set *breaker.Set
}

// bubble runs f with a fresh set in virtual time: no Sleep of f waits.
func bubble(t *testing.T, cfg breaker.Config, f func(b bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(bench{t, breaker.NewSet(cfg, zerolog.Nop())}) })
}

func (b bench) allow(c job.Choice) *breaker.Ticket {
	b.Helper()
	ticket, err := b.set.Allow(c)
	if err != nil {
		b.Fatalf("allow %v: %v", c, err)
	}
	return ticket
}

func (b bench) refused(c job.Choice, key breaker.Key, phase breaker.Phase) *breaker.OpenError {
	b.Helper()
	_, err := b.set.Allow(c)
	var open *breaker.OpenError
	if !errors.As(err, &open) {
		b.Fatalf("allow %v: error %v, want an OpenError", c, err)
	}
	if open.Key != key || open.State != phase || !open.RetryAt.After(time.Now()) || open.Cause == "" {
		b.Fatalf("refused with %+v, want %s of %s, a time to come and a cause", open, phase, key)
	}
	return open
}

// runs lets attempts end with the classes, one after another.
func (b bench) runs(c job.Choice, classes ...job.ErrorClass) {
	b.Helper()
	for _, class := range classes {
		b.allow(c).Settle(breaker.Result{Class: class})
	}
}

func (b bench) state(key breaker.Key) breaker.State {
	b.Helper()
	for _, s := range b.set.Snapshot() {
		if s.Key == key {
			return s
		}
	}
	b.Fatalf("no breaker of %s in %+v", key, b.set.Snapshot())
	panic("unreachable")
}

func (b bench) is(key breaker.Key, want breaker.Phase) {
	b.Helper()
	if s := b.state(key); s.State != want {
		b.Fatalf("%s is %+v, want it %s", key, s, want)
	}
}

func (b bench) counted(key breaker.Key, requests, failures, slow int) {
	b.Helper()
	if s := b.state(key); s.Requests != requests || s.Failures != failures || s.Slow != slow {
		b.Fatalf("%s is %+v, want %d requests, %d failures, %d slow", key, s, requests, failures, slow)
	}
}

// changes takes what was told so far, as "codex closed→open".
func (b bench) changes() []string {
	var all []string
	for {
		select {
		case c := <-b.set.Changes():
			all = append(all, c.Key.String()+" "+string(c.From)+"→"+string(c.To))
		default:
			return all
		}
	}
}
