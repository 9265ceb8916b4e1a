package breaker_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

func TestValidate(t *testing.T) {
	if err := breaker.DefaultConfig().Validate(); err != nil {
		t.Errorf("the default is refused: %v", err)
	}
	tests := []struct {
		change func(*breaker.Config)
		field  string
		value  string
	}{
		{func(c *breaker.Config) { c.BucketPeriod = 0 }, "bucket_period", "0s"},
		{func(c *breaker.Config) { c.BucketPeriod = job.Duration(-time.Second) }, "bucket_period", "-1s"},
		{func(c *breaker.Config) { c.Window = c.BucketPeriod }, "window", "30s"},
		{func(c *breaker.Config) { c.Window = job.Duration(-time.Second) }, "window", "-1s"},
		{func(c *breaker.Config) { c.Window = 1001 * c.BucketPeriod }, "window", "8h20m30s"},
		{func(c *breaker.Config) { c.MinRequests = 0 }, "min_requests", "0"},
		{func(c *breaker.Config) { c.MinRequests = math.MaxInt }, "min_requests", "9223372036854775807"},
		{func(c *breaker.Config) { c.FailureRatio = 0 }, "failure_ratio", "0"},
		{func(c *breaker.Config) { c.FailureRatio = 1.5 }, "failure_ratio", "1.5"},
		{func(c *breaker.Config) { c.FailureRatio = math.NaN() }, "failure_ratio", "NaN"},
		{func(c *breaker.Config) { c.SlowAfter = -1 }, "slow_after", "-1ns"},
		{func(c *breaker.Config) { c.SlowRatio = -0.1 }, "slow_ratio", "-0.1"},
		{func(c *breaker.Config) { c.SlowRatio = math.NaN() }, "slow_ratio", "NaN"},
		{func(c *breaker.Config) { c.SlowRatio = 0.5 }, "slow_after", "0s"},
		{func(c *breaker.Config) { c.OpenFor = 0 }, "open_for", "0s"},
		{func(c *breaker.Config) { c.OpenFor = job.Duration(1000 * time.Hour) }, "open_for", "1000h0m0s"},
		{func(c *breaker.Config) { c.Probes = 0 }, "probes", "0"},
		{func(c *breaker.Config) { c.Probes = -1 }, "probes", "-1"},
	}
	for _, tt := range tests {
		c := breaker.DefaultConfig()
		tt.change(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), tt.field+": is "+tt.value+", want ") {
			t.Errorf("%s %s: error %v, want one that names both and the rule", tt.field, tt.value, err)
		}
		if breaker.NewSet(small, zerolog.Nop()).Configure(c) == nil {
			t.Errorf("%s %s: a set takes it", tt.field, tt.value)
		}
	}
}

func TestValidateTellsEverything(t *testing.T) {
	joined, ok := breaker.Config{SlowRatio: 2}.Validate().(interface{ Unwrap() []error })
	if !ok {
		t.Fatal("several mistakes are one error")
	}
	var got []string
	for _, err := range joined.Unwrap() {
		var field *job.FieldError
		if !errors.As(err, &field) {
			t.Fatalf("%v: of type %T", err, err)
		}
		got = append(got, field.Field)
	}
	want := []string{"bucket_period", "min_requests", "failure_ratio", "slow_ratio", "open_for", "probes", "slow_after"}
	if !slices.Equal(got, want) {
		t.Errorf("mistakes in %q, want %q", got, want)
	}
}

// TestConfigTravels: a core gets its configuration as JSON, under the names
// that Validate uses.
func TestConfigTravels(t *testing.T) {
	cfg := breaker.DefaultConfig()
	cfg.SlowAfter, cfg.SlowRatio = job.Duration(90*time.Second), 0.25
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"window":"10m0s","bucket_period":"30s","min_requests":5,"failure_ratio":0.5,"slow_after":"1m30s","slow_ratio":0.25,"open_for":"1m0s","probes":1}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var back breaker.Config
	if err := json.Unmarshal(text, &back); err != nil || back != cfg {
		t.Errorf("came back as %+v, %v", back, err)
	}
}

func TestDefaultOutlastsOneSickJob(t *testing.T) {
	bubble(t, breaker.DefaultConfig(), func(b bench) {
		for range job.DefaultMaxAttempts {
			b.runs(codex, job.Crash)
		}
		b.is(codexKey, breaker.Closed)
	})
}

func TestConfigureWhileClosed(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.runs(codex, job.Crash, job.Crash)
		running := b.allow(codex)
		if err := b.set.Configure(small); err != nil {
			t.Fatal(err)
		}
		b.counted(codexKey, 2, 2, 0) // the same again changes nothing
		cfg := small
		cfg.MinRequests = 1
		if err := b.set.Configure(cfg); err != nil {
			t.Fatal(err)
		}
		b.counted(codexKey, 0, 0, 0)
		running.Settle(breaker.Result{Class: job.Crash}) // what ran still counts
		b.is(codexKey, breaker.Open)
	})
}

func TestConfigureWhileOpenAndHalfOpen(t *testing.T) {
	bubble(t, small, func(b bench) {
		b.set.Trip(codexKey, time.Now().Add(time.Hour), "a test")
		cfg := small
		cfg.Probes, cfg.OpenFor = 2, job.Duration(time.Minute)
		if err := b.set.Configure(cfg); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(b.state(codexKey).OpenUntil); got != time.Hour {
			t.Errorf("it is open for %s, want 1h as before", got)
		}
		time.Sleep(time.Hour)
		one, two := b.allow(codex), b.allow(codex)
		if err := b.set.Configure(small); err != nil {
			t.Fatal(err)
		}
		b.refused(codex, codexKey, breaker.HalfOpen)
		one.Discard()
		three := b.allow(codex)
		two.Settle(breaker.Result{})
		b.is(codexKey, breaker.HalfOpen)
		three.Settle(breaker.Result{Class: job.Crash})
		if got := time.Until(b.state(codexKey).OpenUntil); got != small.OpenFor.Std() {
			t.Errorf("it is open for %s, want %s as is configured now", got, small.OpenFor.Std())
		}
	})
}
