package watchdog

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

func TestDefaultIsValid(t *testing.T) {
	c := Default()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Config
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(c, back) {
		t.Errorf("read back %v: %+v, want %+v", err, back, c)
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name string
		set  func(*Config)
		want string // "" for none
	}{
		{"everything off", func(c *Config) {
			c.Stall.After, c.Repetition.Calls, c.Defence.Thresholds = 0, 0, Thresholds{}
			c.Escalation = EscalationConfig{}
		}, ""},
		{"equal steps", func(c *Config) {
			c.Defence.Thresholds.CPU = Ladder{Shed: Band{2, 1}, Throttle: Band{2, 1}}
		}, ""},
		{"no window", func(c *Config) { c.Window = 0 }, "window: is 0s, want a duration above 0s"},
		{"negative stall", func(c *Config) { c.Stall.After = -1 }, "stall_after: is -1ns, want a duration of 0s or more"},
		{"CPU ratio", func(c *Config) { c.Stall.MinCPURatio = math.NaN() }, "min_cpu_ratio: is NaN, want a number from 0 to 1"},
		{"one call", func(c *Config) { c.Repetition.Calls = 1 }, "repeated_calls: is 1, want 2 or more, since 1 would end every run at its first call, or 0 for any number"},
		{"a stage above its successor", func(c *Config) { c.Defence.Thresholds.TimeoutRate.Shed.Enter = 0.45 },
			"defence.thresholds.worker_timeout_rate.shed.enter: is 0.45, above the one of its successor throttle, which is 0.4"},
		{"the successor is not the next stage", func(c *Config) { c.Defence.Thresholds.CancelLatency.Throttle = Band{20_000, 8000} },
			"defence.thresholds.worker_cancel_latency_ms.throttle.enter: is 20000, above the one of its successor escalate, which is 15000"},
		{"leave above the successor's", func(c *Config) {
			c.Defence.Thresholds.Heartbeat.Throttle.Leave = 2499
			c.Defence.Thresholds.Heartbeat.Escalate.Leave = 2400
		},
			"defence.thresholds.heartbeat_latency_ms.throttle.leave: is 2499, above the one of its successor escalate, which is 2400"},
		{"no hysteresis", func(c *Config) { c.Defence.Thresholds.QueueDepth.Shed = Band{5, 5} },
			"defence.thresholds.queue_depth.shed.leave: is 5, want less than enter, which is 5"},
		{"negative threshold", func(c *Config) { c.Defence.Thresholds.QueueOldest.Shed = Band{-5, -6} },
			"defence.thresholds.queue_oldest_ms.shed.enter: is -5, want a number of 0 or more\ndefence.thresholds.queue_oldest_ms.shed.leave: is -6, want a number of 0 or more"},
		{"infinite threshold", func(c *Config) { c.Defence.Thresholds.RSS.Escalate.Enter = math.Inf(1) },
			"defence.thresholds.core_rss_bytes.escalate.enter: is +Inf, want a number of 0 or more"},
		{"no dwell", func(c *Config) { c.Defence.Dwell.OpenBreaker = 0 }, "defence.dwell.open_breaker: is 0s, want a duration above 0s, or the stages flap"},
		{"no runs", func(c *Config) { c.Defence.MinRuns = 0 }, "defence.min_runs: is 0, want 1 or more"},
		{"throttled to nothing", func(c *Config) { c.Defence.ThrottleRatio = 0 }, "defence.throttle_ratio: is 0, want a number above 0 and at most 1"},
		{"sick ratio", func(c *Config) { c.Defence.SickRatio = 1.5 }, "defence.sick_ratio: is 1.5, want a number above 0 and at most 1"},
		{"empty class", func(c *Config) { c.Defence.ShedClasses = []job.Class{"batch", ""} }, "defence.shed_classes[1]: \"\" is unknown, want interactive, standard or batch"},
		{"negative count", func(c *Config) { c.Escalation.LatestWins.Count = -1 }, "escalation.latest_wins.count: is -1, want 1 to 1000, or 0 for any number"},
		{"large count", func(c *Config) { c.Escalation.CoreCrashes.Count = 1001 }, "escalation.core_crashes.count: is 1001, want 1 to 1000, or 0 for any number"},
		{"a count without a time", func(c *Config) { c.Escalation.WorkerCrashes.Within = 0 }, "escalation.worker_crashes.within: is 0s, want a duration above 0s"},
		{"negative disk", func(c *Config) { c.Escalation.Disk.MinFreeBytes = -1 }, "escalation.disk.min_free_bytes: is -1, want 0 or more"},
		{"a disk that cannot recover", func(c *Config) { c.Escalation.Disk.MinFreeRatio = 0.6 },
			"escalation.disk.min_free_ratio: is 0.6, want a ratio of at most 0.5, or no disk could recover"},
		{"negative jump", func(c *Config) { c.Escalation.ClockJump.Above = -1 }, "escalation.clock_jump.above: is -1ns, want a duration of 0s or more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Default()
			tt.set(&c)
			err := c.Validate()
			if got := text(err); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			var field *job.FieldError
			if err != nil && !errors.As(err, &field) {
				t.Errorf("%T is no job.FieldError", err)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestValidateTellsAll(t *testing.T) {
	c := Config{}
	want := 1 + int(stageCount) + 4 // window, each dwell, min_runs, two ratios, open_for
	errs := c.Validate().(interface{ Unwrap() []error }).Unwrap()
	if len(errs) != want {
		t.Errorf("%d errors of an empty configuration, want %d: %v", len(errs), want, errs)
	}
}

func TestStageWords(t *testing.T) {
	for s := Normal; s < stageCount; s++ {
		text, err := s.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Stage
		if err := back.UnmarshalText(text); err != nil || back != s {
			t.Errorf("%s is read back as %s: %v", s, back, err)
		}
	}
	var s Stage
	if err := s.UnmarshalText([]byte("panic")); err == nil {
		t.Error("panic was read as a stage")
	}
}

// Validate lets pass only ladders on which what asks for a stage holds it, and
// on which more never reaches less far.
func TestLaddersAreMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Sorted, so that most are valid.
		sorted := func(label string, low, high int) []int {
			all := rapid.SliceOfN(rapid.IntRange(low, high), 4, 4).Draw(t, label)
			slices.Sort(all)
			return all
		}
		enter, leave := sorted("enter", 2, 9), sorted("leave", 0, 5)
		var bands [4]Band
		for i := range bands {
			if rapid.IntRange(0, 3).Draw(t, "set") > 0 {
				bands[i] = Band{float64(enter[i]), float64(leave[i])}
			}
		}
		l := Ladder{bands[0], bands[1], bands[2], bands[3]}
		c := Default()
		c.Defence.Thresholds.CPU = l
		if c.Validate() != nil {
			t.Skip("not valid")
		}
		var lastAsked, lastHeld Stage
		for value := 0.0; value <= 10; value += 0.5 {
			asked, held := l.reach(value)
			if asked > held || asked < lastAsked || held < lastHeld {
				t.Fatalf("%+v: %g asks for %s and holds %s, less asked for %s and held %s", l, value, asked, held, lastAsked, lastHeld)
			}
			lastAsked, lastHeld = asked, held
		}
	})
}
