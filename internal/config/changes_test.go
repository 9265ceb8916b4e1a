package config_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/watchdog"
)

func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		old, next       string
		reload, restart []string
	}{
		{"", "# nothing", nil, nil},
		{"stop: {kill: 10s}", "stop: {kill: 10000ms}", nil, nil},
		{"", "stop: {kill: 11s}", []string{"stop.kill"}, nil},
		{"", "workers: {codex: {}}", []string{"workers.codex"}, nil},
		{"workers: {codex: {}, claude: {}}", "workers: {shell: {}, claude: {}}", []string{"workers.codex", "workers.shell"}, nil},
		{"workers: {codex: {model: a}}", "workers: {codex: {model: b, env: [A]}}", []string{"workers.codex.model", "workers.codex.env"}, nil},
		{"workers: {codex: {}}", "workers: {codex: {env: []}}", nil, nil},
		{"prices: {gpt-5.1: {input: 1, cached: 1, output: 2}}", "prices: {gpt-5.1: {input: 1, output: 2}}", []string{`prices["gpt-5.1"].cached`}, nil},
		{"cost_windows: [{window: 1h, max_usd: 1}]", "cost_windows: [{window: 1h, max_usd: 2}]", []string{"cost_windows"}, nil},
		{"", "watchdog: {defence: {thresholds: {queue_depth: {shed: {enter: 999}}}}}", []string{"watchdog.defence.thresholds.queue_depth.shed.enter"}, nil},
		{"", "cores: {count: 2, restarts: {count: 4}}\nretry: {max: 6m}", []string{"retry.max"}, []string{"cores.count", "cores.restarts.count"}},
		{"", "webhooks: {listen: '127.0.0.1:1'}\ntriggers: {a: {every: 1h, job: j}}", []string{"triggers.a"}, []string{"webhooks.listen"}},
		{"triggers: {a: {every: 1h, job: j}}", "triggers: {a: {every: 1h, job: j, enabled: false}}", []string{"triggers.a.enabled"}, nil},
		{"", "api: {listen: '127.0.0.1:1', hosts: [a]}\nlog: {format: json, level: debug, levels: {api: warn}}", []string{"log.level", "log.levels.api"}, []string{"api.listen", "api.hosts", "log.format"}},
		{"", "telemetry: {otlp: {endpoint: 'http://h', headers: {a: b}}}\naudit: {keep: 1}", nil, []string{"telemetry.otlp.endpoint", "telemetry.otlp.headers.a", "audit.keep"}},
		{"", "heartbeat: {interval: 2s}", nil, []string{"heartbeat.interval"}},
		{"", "heartbeat: {hang_after: 20s}", nil, []string{"heartbeat.hang_after", "cores.slow_heartbeat"}},
	} {
		reload, restart := config.Changes(decode(t, tt.old), decode(t, tt.next))
		if !slices.Equal(reload, tt.reload) || !slices.Equal(restart, tt.restart) {
			t.Errorf("%s → %s: got %q and %q, want %q and %q", tt.old, tt.next, reload, restart, tt.reload, tt.restart)
		}
		// What a program goes on with differs from the file in just that.
		in := decode(t, tt.old).Reloaded(decode(t, tt.next))
		if reload, restart := config.Changes(in, decode(t, tt.next)); len(reload) > 0 || !slices.Equal(restart, tt.restart) {
			t.Errorf("%s → %s: in force %+v, other than the file %q and %q", tt.old, tt.next, in, reload, restart)
		}
		back, backRestart := config.Changes(decode(t, tt.next), decode(t, tt.old))
		if !slices.Equal(back, reload) || !slices.Equal(backRestart, restart) {
			t.Errorf("%s → %s: there %q %q, back %q %q", tt.old, tt.next, reload, restart, back, backRestart)
		}
	}
}

func decode(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Decode("c", []byte(text), options)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// What the sections become is what the packages themselves have by default.
func TestDefaultsOfOthers(t *testing.T) {
	c := config.Default()
	if got := c.WatchdogConfig(); !reflect.DeepEqual(got, watchdog.Default()) {
		t.Errorf("watchdog: got %+v, want %+v", got, watchdog.Default())
	}
	if got := c.BreakerConfig(); got != breaker.DefaultConfig() {
		t.Errorf("breaker: got %+v, want %+v", got, breaker.DefaultConfig())
	}
}

// Every field of the file arrives, and survives the way to the core as JSON.
func TestConversions(t *testing.T) {
	c := decode(t, string(schematest.Inputs(t, "testdata/good.txtar")["everything"]))
	w, b := c.WatchdogConfig(), c.BreakerConfig()
	base := watchdog.Default()
	if w.Window == base.Window || w.Stall.After == base.Stall.After || w.Stall.MinCPURatio == base.Stall.MinCPURatio || w.Repetition == base.Repetition {
		t.Errorf("a field of watchdog did not arrive: %+v", w)
	}
	for i := range reflect.TypeFor[watchdog.DefenceConfig]().NumField() {
		if reflect.DeepEqual(reflect.ValueOf(w.Defence).Field(i).Interface(), reflect.ValueOf(base.Defence).Field(i).Interface()) {
			t.Errorf("watchdog.defence: %s did not arrive", reflect.TypeFor[watchdog.DefenceConfig]().Field(i).Name)
		}
	}
	for i := range reflect.TypeFor[watchdog.EscalationConfig]().NumField() {
		if reflect.DeepEqual(reflect.ValueOf(w.Escalation).Field(i).Interface(), reflect.ValueOf(base.Escalation).Field(i).Interface()) {
			t.Errorf("escalation: %s did not arrive", reflect.TypeFor[watchdog.EscalationConfig]().Field(i).Name)
		}
	}
	roundTrip(t, w)
	roundTrip(t, b)
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
	if err := b.Validate(); err != nil {
		t.Error(err)
	}
}

func roundTrip[T any](t *testing.T, v T) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, v) {
		t.Errorf("%s: came back as %+v, %v", text, back, err)
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[string]config.Size{"0": 0, "64MiB": 64 << 20, "1536 MiB": 1536 << 20, "1000": 1000, "7B": 7, "3TiB": 3 << 40} {
		var s config.Size
		if err := s.UnmarshalText([]byte(in)); err != nil || s != want {
			t.Errorf("%s: got %d, %v, want %d", in, s, err, want)
		}
		roundTrip(t, s)
	}
	for want, in := range map[string]config.Size{"0B": 0, "1GiB": 1 << 30, "1025MiB": 1025 << 20, "1001B": 1001} {
		if in.String() != want {
			t.Errorf("%d: got %s, want %s", in, in, want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "+1", "1e3", "1.5GiB", "1GB", "8388608TiB", "9223372036854775808"} {
		var s config.Size
		if err := s.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: accepted as %d", in, s)
		}
	}
}
