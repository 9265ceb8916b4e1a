package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scriptmodel"
	"github.com/agentsched/agentsched/job"
)

// asked returns when the model was asked for what the script plays.
func (b *bench) asked(model string) []time.Time {
	var at []time.Time
	for _, r := range b.model.Requests() {
		if r.Model == model && !r.Side {
			at = append(at, r.At)
		}
	}
	return at
}

func TestRealAuth(t *testing.T) {
	eachCLI(t, "codex opencode", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("auth", scriptmodel.Always(scriptmodel.Status(401, 0)))
		r := b.start("run", b.jobs(b.task("auth", kind, "auth", nil)))
		r.exit(1)
		j := b.show("auth")
		o := b.last(j)
		// One request: what a held run asks with is the gateway's, which no program renews.
		if n := len(b.asked("auth")); len(j.Attempts) != 1 || n != 1 {
			r.fatalf("%d attempts and %d requests, want 1 and 1", len(j.Attempts), n)
		}
		if o.Class != job.Auth || o.Message == "" || o.Hint == "" {
			r.fatalf("class %s, message %q, hint %q; want %s with both", o.Class, o.Message, o.Hint, job.Auth)
		}
		if j.Job.ExitKind != job.ExitFailed || !strings.Contains(j.Job.DeadLetter, string(job.Auth)) {
			r.fatalf("exit kind %s, dead letter %q", j.Job.ExitKind, j.Job.DeadLetter)
		}
		if out, _, _ := b.command("show", "auth"); !strings.Contains(out, o.Hint) {
			r.fatalf("`show` does not say the hint %q:\n%s", o.Hint, out)
		}
		if kind == "claude" { // the trap: a failure that calls itself a success
			i := slices.IndexFunc(o.Artifacts, func(a job.Artifact) bool { return a.Name == job.ArtifactStdout })
			text, err := os.ReadFile(o.Artifacts[i].Path)
			if err != nil || !strings.Contains(string(text), `"subtype":"success","is_error":true`) {
				r.fatalf("claude did not print what this test is about (%v):\n%s", err, text)
			}
		}
		b.noProcess()
	})
}

// TestRealRateLimit: after a 429 the provider is not asked again before the
// time that it named in the retry-after header.
func TestRealRateLimit(t *testing.T) {
	eachCLI(t, "codex claude", func(t *testing.T, kind job.WorkerKind) {
		const wait = 3 * time.Second
		b := newBench(t)
		b.use(kind)
		b.play("busy", scriptmodel.Play(scriptmodel.Edit("a.txt", "a"), scriptmodel.Say("Done.")).FailingFirst(1, scriptmodel.Status(429, wait)))
		r := b.start("run", b.jobs(b.task("busy", kind, "busy", nil)))
		r.exit(0)
		at := b.asked("busy")
		if gap := at[1].Sub(at[0]); gap < wait {
			r.fatalf("asked again after %s, the provider wanted %s", gap, wait)
		}
		j := b.show("busy")
		b.healed(j, kind, job.RateLimit)
		b.content(b.applied(b.last(j))+"/a.txt", "a")
		b.noProcess()
	})
}

// healed checks that the job completed in its second attempt after one that
// failed with the class; OpenCode, which has no switch for its own tries, may
// have healed within the first.
func (b *bench) healed(j api.JobDetail, kind job.WorkerKind, class job.ErrorClass) {
	b.t.Helper()
	n := len(j.Attempts)
	if !b.last(j).Succeeded() || n > 2 || n < 2 && kind != "opencode" || n == 2 && j.Attempts[0].Outcome.Class != class {
		b.fatalf("want a first attempt that ends with %s, and a second that completes: %s", class, asJSON(b.t, j.Attempts))
	}
}

// TestRealRateLimitForEver: the job is given up when its attempts are used up,
// and says why.
func TestRealRateLimitForEver(t *testing.T) {
	eachCLI(t, "claude", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("limited", scriptmodel.Always(scriptmodel.Status(429, 2*time.Second)))
		r := b.start("run", b.jobs(b.task("limited", kind, "limited", obj{"limits": obj{"max_attempts": 2}})))
		r.exit(1)
		j := b.show("limited")
		if len(j.Attempts) != 2 || j.Job.DeadLetter == "" {
			r.fatalf("want a dead letter after 2 attempts: %s", asJSON(t, j))
		}
		for _, a := range j.Attempts {
			if a.Outcome.Class != job.RateLimit {
				r.fatalf("want %s: %s", job.RateLimit, asJSON(t, a))
			}
		}
		first, second := j.Attempts[0].Outcome, j.Attempts[1]
		if first.RetryAt == nil || second.Started.Before(*first.RetryAt) {
			r.fatalf("may be tried again from %v on, was tried again at %v", first.RetryAt, second.Started)
		}
		b.noProcess()
	})
}

// TestRealServerFailure: what the CLI does not try again by itself, we do.
func TestRealServerFailure(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  scriptmodel.Fault
		times  map[job.WorkerKind]int // in a row
		sample string
	}{
		{"500", scriptmodel.Status(500, 0), map[job.WorkerKind]int{"codex": 1, "claude": 1, "opencode": 1}, "codex opencode"},
		// Claude Code asks once more by itself, without a stream, when a stream broke.
		{"broken stream", scriptmodel.BrokenSSE(), map[job.WorkerKind]int{"codex": 1, "claude": 2, "opencode": 1}, "claude"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachCLI(t, c.sample, func(t *testing.T, kind job.WorkerKind) {
				b := newBench(t)
				b.use(kind)
				script := scriptmodel.Play(scriptmodel.Edit("a.txt", "a"), scriptmodel.Say("Done."))
				b.play("flaky", script.FailingFirst(c.times[kind], c.fault))
				r := b.start("run", b.jobs(b.task("flaky", kind, "flaky", nil)))
				r.exit(0)
				j := b.show("flaky")
				b.healed(j, kind, job.Server)
				b.content(b.applied(b.last(j))+"/a.txt", "a")
				b.noProcess()
			})
		})
	}
}

// TestRealHang: a provider that never answers costs no more than the job's own
// time and the stop stages.
func TestRealHang(t *testing.T) {
	eachCLI(t, "codex", func(t *testing.T, kind job.WorkerKind) {
		b := newBench(t)
		b.use(kind)
		b.play("hang", scriptmodel.Always(scriptmodel.Hang()))
		limit := 4 * time.Second
		var r *run
		for { // until the CLI is fast enough on this machine to ask the model
			r = b.start("run", b.jobs(b.task("hang", kind, "hang", obj{"limits": obj{"timeout": limit.String(), "max_attempts": 1}})))
			r.exit(1)
			if len(b.asked("hang")) > 0 || limit > 5*time.Minute {
				break
			}
			limit *= 2
		}
		j := b.show("hang")
		o := b.last(j)
		if o.Class != job.Timeout || o.State != job.RunFailed || len(j.Attempts) != 1 {
			r.fatalf("want one attempt that ends with %s: %s", job.Timeout, asJSON(t, j.Attempts))
		}
		// The stop stages are a second; the rest is for a busy machine.
		if took := o.EndedAt.Sub(o.StartedAt); took < limit || took > limit+time.Minute {
			r.fatalf("the attempt took %s, its limit is %s", took, limit)
		}
		if len(b.asked("hang")) == 0 {
			r.fatalf("the model was not even asked: the test shows nothing")
		}
		b.noProcess()
	})
}
