package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

func TestScreen(t *testing.T) {
	rows := func(w io.Writer) {
		fmt.Fprintln(w, "fix\tcompleted\tthe first")
		fmt.Fprintln(w, "größe-漢\tfailed\tsome long reason for which it has failed")
		fmt.Fprintln(w, "x\tpending\t")
	}
	for name, c := range map[string]struct {
		w    *screen
		want string
	}{
		"colour": {&screen{colour: true}, "\x1b[1mJOB      STATE      NOTE\x1b[m\nfix      \x1b[32mcompleted\x1b[m  the first\n" +
			"größe-漢  \x1b[31mfailed\x1b[m     some long reason for which it has failed\nx        \x1b[2mpending\x1b[m    \n"},
		"width": {&screen{width: 30}, "JOB      STATE      NOTE\nfix      completed  the first\ngröße-漢  failed     some lon…\nx        pending\n"},
		"both":  {&screen{width: 12, colour: true}, "\x1b[1mJOB      ST…\x1b[m\nfix      co…\ngröße-漢  f…\nx        pe…\n"},
	} {
		var out bytes.Buffer
		c.w.Writer = &out
		if err := table(c.w, "JOB\tSTATE\tNOTE", rows); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%s:\n%q, want\n%q", name, out.String(), c.want)
		}
		if w := c.w.width; w > 0 && !c.w.colour {
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; n > w {
					t.Errorf("%s: %d characters in %q", name, n, line)
				}
			}
		}
	}
	// What is piped has not a byte more.
	var piped, plain bytes.Buffer
	con := &console{stdout: &piped, getenv: func(string) string { return "" }}
	if err := table(con.out(), "JOB\tSTATE\tNOTE", rows); err != nil {
		t.Fatal(err)
	}
	if err := alignedTable(&plain, "JOB\tSTATE\tNOTE", rows); err != nil {
		t.Fatal(err)
	}
	if piped.String() != plain.String() {
		t.Errorf("piped: %q, want %q", piped.String(), plain.String())
	}
}

func TestColourModes(t *testing.T) {
	for _, c := range []struct {
		mode, noColour string
		want           bool
	}{{"auto", "", false}, {"always", "", true}, {"always", "1", true}, {"never", "", false}} {
		var mode colourMode
		if err := mode.Set(c.mode); err != nil {
			t.Fatal(err)
		}
		con := &console{getenv: func(name string) string { return map[string]string{"NO_COLOR": c.noColour}[name] }}
		con.color = mode
		if got := con.colour(nil); got != c.want {
			t.Errorf("--color=%s NO_COLOR=%s: %v, want %v", c.mode, c.noColour, got, c.want)
		}
	}
	if err := new(colourMode).Set("purple"); err == nil || !strings.Contains(err.Error(), "auto, always or never") {
		t.Errorf("purple: %v", err)
	}
}

// TestNarrowList: on a terminal of 60 columns a list of jobs has the end of each id
// and its state, and says what it waits for; on a wide one nothing is cut.
func TestNarrowList(t *testing.T) {
	jobs := []api.Job{{
		ID: "01a1fcce-6b90-7022-94af-83e4d513c5ef", State: job.Queued, CreatedAt: time.Now(),
		Spec:   job.Spec{Name: "behavioral-shares-of-tenants", Tenant: "website", Worker: "opencode"},
		Status: &job.Status{State: job.Pending, Waiting: &job.Waiting{Reason: job.WaitSlot, Text: "2 of 2 slots are taken"}},
	}, {
		ID: "01a1fcce-6b90-7022-94af-83e4aaaaaaaa", State: job.Queued, Status: &job.Status{State: job.WaitingApproval}, CreatedAt: time.Now(),
		Spec: job.Spec{Name: "poster", Tenant: "website", Worker: "codex"},
	}}
	for width, want := range map[int][]string{
		60:  {"behaviora", "d513c5ef  pending ", "waiting for", "aaaaaaaa  waiting_approval"},
		200: {"behavioral-shares-of-tenants  d513c5ef  website  opencode  pending ", "waiting for a slot: 2 of 2 slots are taken"},
	} {
		var out strings.Builder
		if err := printRows(&screen{Writer: &out, width: width}, jobs); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%d columns: lacks %q:\n%s", width, w, &out)
			}
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("a line of %d cells on %d columns: %q", n, width, line)
			}
		}
	}
}

// TestUsageWithoutWorker: what ended without a worker is told by name.
func TestUsageWithoutWorker(t *testing.T) {
	var out strings.Builder
	if err := printUsage(&out, []api.Dimension{api.ByWorker}, []api.Account{{Completed: 2}}, api.Account{Completed: 2}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "(not started)") {
		t.Error(out.String())
	}
}
