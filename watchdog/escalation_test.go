package watchdog

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/job"
)

func TestEscalationTranscripts(t *testing.T) {
	transcripts(t, "escalation", func() player {
		return &escalationPlayer{decider: NewEscalations(Default().Escalation), book: &isolation.Book{}}
	})
}

type escalationPlayer struct {
	decider *Escalations
	book    *isolation.Book
}

func (p *escalationPlayer) play(t *testing.T, now time.Time, verb string, w lineWords) []string {
	rest := strings.Join(w.plain, " ")
	switch verb {
	case "crash":
		s := WorkerCrash{Kind: job.WorkerKind(w.plain[0]), Tenant: "ann", Job: "1"} // crash KIND TENANT JOB
		if len(w.plain) > 2 {
			s.Tenant, s.Job = job.Tenant(w.plain[1]), job.ID(w.plain[2])
		}
		return p.observe(now, s)
	case "latest-wins":
		return p.observe(now, LatestWins{rest})
	case "core-crash":
		return p.observe(now, CoreCrash{})
	case "ghost":
		return p.observe(now, Ghost{rest})
	case "clock":
		by, err := time.ParseDuration(rest)
		if err != nil {
			t.Fatal(err)
		}
		return p.observe(now, ClockJump{by})
	case "overload":
		return p.observe(now, Overload{rest})
	case "disk":
		free, total, _ := w.parts("mib")
		inodes, of, _ := w.parts("inodes")
		return p.observe(now, DiskSpace{Path: rest, FreeBytes: free << 20, TotalBytes: total << 20, FreeInodes: inodes, TotalInodes: of})
	case "run?":
		r := isolation.Run{Kind: job.WorkerKind(w.plain[0])} // run? KIND [TENANT] [WORKSPACE]
		for _, word := range w.plain[1:] {
			if filepath.IsAbs(word) {
				r.Workspace = word
			} else {
				r.Tenant = job.Tenant(word)
			}
		}
		i, blocked := p.book.Blocked(r, now)
		if !blocked {
			return []string{"free"}
		}
		d := Refuse(i, now)
		return []string{fmt.Sprintf("blocked by %s: %s %s retry=%s", i.Scope, d.Action, d.Reason, d.RetryAfter)}
	case "lift":
		scope, err := isolation.ParseScope(rest)
		if err != nil {
			return []string{err.Error()}
		}
		if _, ok := p.book.Lift(scope); !ok {
			return []string{"was not isolated"}
		}
		return []string{"lifted"}
	case "expire":
		return shownIsolations(p.book.Expire(now))
	case "list":
		return shownIsolations(p.book.List(now))
	case "restart":
		text, err := json.Marshal(p.book)
		if err != nil {
			t.Fatal(err)
		}
		p.book, p.decider = &isolation.Book{}, NewEscalations(Default().Escalation)
		if err := json.Unmarshal(text, p.book); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	t.Fatalf("no verb %q", verb)
	return nil
}

func (p *escalationPlayer) observe(now time.Time, s Signal) []string {
	var out []string
	for _, x := range p.decider.Observe(now, s) {
		line := fmt.Sprintf("%s %s %s %s", x.Action, x.Scope, x.Cause, until(x.Until))
		if x.Again {
			line += " again"
		}
		if p.book.Apply(now, x.Isolation()) {
			line += " (to be stored)"
		}
		out = append(out, line+": "+x.Message)
	}
	return out
}

func shownIsolations(list []isolation.Isolation) []string {
	out := []string{}
	for _, i := range list {
		out = append(out, fmt.Sprintf("%s %s %s since %s %s", i.Action, i.Scope, i.Cause, i.Since.Sub(midnight), until(i.Until)))
	}
	if len(out) == 0 {
		return []string{"nothing"}
	}
	return out
}

func until(at time.Time) string {
	if at.IsZero() {
		return "until lifted"
	}
	return "until " + at.Sub(midnight).String()
}

func TestBurstsForget(t *testing.T) {
	cfg := Default().Escalation
	cfg.LatestWins = Burst{Count: 2, Within: job.Duration(time.Minute)}
	e := NewEscalations(cfg)
	// One more than are remembered: the first is forgotten, the last is not.
	for n := range 1025 {
		e.Observe(midnight.Add(time.Duration(n)*time.Millisecond), LatestWins{"/w/" + strconv.Itoa(n)})
	}
	soon := midnight.Add(2 * time.Second)
	if got := e.Observe(soon, LatestWins{"/w/1024"}); len(got) != 1 {
		t.Errorf("the last workspace was forgotten: %v", got)
	}
	if got := e.Observe(soon, LatestWins{"/w/0"}); len(got) != 0 {
		t.Errorf("the first of 1025 workspaces was remembered: %v", got)
	}
}
