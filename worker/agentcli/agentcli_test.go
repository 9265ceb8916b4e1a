package agentcli_test

import (
	"testing"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker/agentcli"
)

func TestRetryHeaders(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		after       time.Duration
		at          time.Time
		said        bool
	}{
		{"retry-after-ms", "1500", 1500 * time.Millisecond, time.Time{}, true},
		{"retry-after", "90", 90 * time.Second, time.Time{}, true},
		{"retry-after", "0", 0, time.Time{}, true},
		{"retry-after", "Sat, 21 Nov 2026 09:00:00 GMT", 0, now.Add(time.Hour), true},
		{"retry-after", "Sat, 21 Nov 2026 07:00:00 GMT", -1, time.Time{}, true}, // past
		{"retry-after", "-1", -1, time.Time{}, false},
		{"retry-after", "NaN", -1, time.Time{}, false},
		{"retry-after", "1e300", -1, time.Time{}, false},
		{"retry-after", "soon", -1, time.Time{}, false},
	} {
		got, said := agentcli.RetryHeaders(func(name string) string {
			if name == c.name {
				return c.value
			}
			return ""
		}, now)
		if said != c.said || (got == nil) != (c.after < 0) {
			t.Errorf("%s: %s: %+v, said %v", c.name, c.value, got, said)
		} else if got != nil && (got.After != c.after || !got.At.Equal(c.at)) {
			t.Errorf("%s: %s: %+v", c.name, c.value, got)
		}
	}
}

func TestAfter(t *testing.T) {
	for words, want := range map[string]time.Duration{
		"1 day 2 hours": 26 * time.Hour, "850ms": 850 * time.Millisecond, "2m 3.5 seconds": 2*time.Minute + 3500*time.Millisecond, "": 0,
	} {
		if got := agentcli.After(words); got == nil || got.After != want {
			t.Errorf("%q: %+v, want %s", words, got, want)
		}
	}
	if got := agentcli.After("99999999 days"); got != nil {
		t.Errorf("too long: %+v", got)
	}
}

func TestClassify(t *testing.T) {
	rules := []agentcli.Rule{agentcli.NewRule(job.Auth, "log in", "you're not logged in"), agentcli.NewRule(job.Server, "", "logged")}
	for message, want := range map[string]job.ErrorClass{
		"Error: You’re NOT logged in.": job.Auth, "it was logged": job.Server, "odd": job.Unknown,
	} {
		if class, _ := agentcli.Classify(rules, message); class != want {
			t.Errorf("%q: %s, want %s", message, class, want)
		}
	}
}

func TestLastLines(t *testing.T) {
	text := "one\n\x1b[31mtwo\x1b[0m\n\n  noise\nthree \nfour"
	if got := agentcli.LastLines(text, 3, func(line string) bool { return line == "noise" }); got != "two\nthree\nfour" {
		t.Errorf("%q", got)
	}
}
