package config_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/watchdog"
)

const (
	schemaFile    = "../../docs/config.schema.json"
	referenceFile = "../../docs/config.md"
)

var (
	update = flag.Bool("update", false, "rewrite the answers in testdata")

	// options is what these tests read every configuration against.
	options = config.Options{Adapters: []string{"codex", "claude", "opencode", "shell", "exec"}, NeedCommand: []string{"exec"}}
)

// TestGood shows what differs from the default.
func TestGood(t *testing.T) {
	schematest.Golden(t, "testdata/good.txtar", *update, func(t *testing.T, name string, data []byte) string {
		c, err := config.Decode(name, data, options)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(beyond(asJSON(t, config.Default()), asJSON(t, c)), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text) + "\n"
	})
}

func asJSON(t *testing.T, c config.Config) map[string]any {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// beyond returns what got has in another way than base, null for what it has not.
func beyond(base, got map[string]any) map[string]any {
	out := map[string]any{}
	for name := range base {
		if _, there := got[name]; !there {
			out[name] = nil
		}
	}
	for name, value := range got {
		was, _ := base[name].(map[string]any)
		if is, ok := value.(map[string]any); ok && was != nil {
			if rest := beyond(was, is); len(rest) > 0 {
				out[name] = rest
			}
		} else if !reflect.DeepEqual(base[name], value) {
			out[name] = value
		}
	}
	return out
}

func TestBad(t *testing.T) {
	schematest.Golden(t, "testdata/bad.txtar", *update, func(t *testing.T, name string, data []byte) string {
		c, err := config.Decode(name, data, options)
		if err == nil {
			t.Fatalf("accepted: %+v", c)
		}
		var list strictyaml.Errors
		if !errors.As(err, &list) {
			t.Errorf("error of type %T", err)
		}
		return err.Error() + "\n"
	})
}

// TestEveryField gives each field values that few fields take. Where a field is
// accepted here, its file may still want more of it than a value of its own.
func TestEveryField(t *testing.T) {
	entries := map[string]schematest.Entry{
		"rates.workers.*":              {Key: "codex"},
		"concurrency.per_worker.*":     {Key: "codex"},
		"concurrency.per_workspace.*":  {Key: "/srv/site"},
		"workers.*":                    {Key: "codex"},
		"prices.*":                     {Beside: map[string]string{"input": "1", "output": "1"}},
		"cost_windows[]":               {Beside: map[string]string{"window": "24h", "max_usd": "1"}},
		"recovery.classes.*":           {Key: "CRASH", Beside: map[string]string{"action": "retry"}},
		"recovery.domains.*.classes.*": {Key: "CRASH", Beside: map[string]string{"action": "retry"}},
		"dead_letters.redrive[]":       {Beside: map[string]string{"class": "[CRASH]"}},
		"triggers.*":                   {Beside: map[string]string{"job": "a.yaml"}},
		"triggers.*.watch":             {Beside: map[string]string{"paths": "[src]"}},
		"triggers.*.webhook":           {Beside: map[string]string{"path": "/a", "secret_env": "SECRET"}},
		"triggers.*.command":           {Beside: map[string]string{"run": "ls", "every": "1m"}},
		"log.levels.*":                 {Key: "api"},
		"telemetry.otlp":               {Beside: map[string]string{"endpoint": "http://127.0.0.1:1"}},
		"fleet.artifacts.s3":           {Beside: map[string]string{"endpoint": "https://s3.example.com", "bucket": "agents", "access_key": "env:A", "secret_key": "env:S"}},
	}
	schematest.Probe(t, schemaFile, "testdata/fields.golden", *update, entries, func(file string) error {
		_, err := config.Decode("c", []byte(file+"\n"), options)
		return err
	})
}

func TestMessagesRepeatNoSecret(t *testing.T) {
	for _, in := range []string{
		"workers: {codex: {base_url: 'https://u:hunter2@h/'}}", "workers: {codex: {base_url: 'http://h', key_env: sk-hunter2}}",
		"workers: {codex: {base_url: 'hunter2://x y'}}", "escalation: {webhook: 'https://u:hunter2@h/'}", "escalation: {webhook: hunter2}", "workers: {codex: {env: [K=hunter2]}}",
		"telemetry: {otlp: {endpoint: 'https://u:hunter2@h/'}}", "telemetry: {otlp: {endpoint: hunter2}}", "telemetry: {otlp: {headers: {a: hunter2}}}", `telemetry: {otlp: {endpoint: 'http://h', headers: {a: "hunter2\n"}}}`,
		"fleet: {artifacts: {s3: {endpoint: 'https://u:hunter2@h', bucket: agents, access_key: hunter2, secret_key: hunter2}}}",
	} {
		if _, err := config.Decode("c", []byte(in), options); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestDefault(t *testing.T) {
	for _, in := range []string{"", "# nothing yet\n", "stop: {}\n"} {
		c, err := config.Decode("c", []byte(in), options)
		if err != nil || !reflect.DeepEqual(c, config.Default()) {
			t.Errorf("%q: got %+v, %v, want the default", in, c, err)
		}
	}
	if c := config.Default(); c.Concurrency.Max != max(2, runtime.NumCPU()) || c.Stop.Terminate.Std() != 5*time.Second {
		t.Errorf("got %+v", c)
	}
}

func TestDefaultPricesCost(t *testing.T) {
	for model, p := range config.Default().Prices {
		u := job.Usage{InputTokens: 2e6, CachedTokens: 1e6, OutputTokens: 1e6}
		if got, want := p.Cost(u), p.Input+*p.CachedRead+p.Output; got != want || *p.CachedRead >= p.Input || p.Input >= p.Output {
			t.Errorf("%s: %v costs %g for a million of each, want %g", model, p, got, want)
		}
		reference, err := os.ReadFile(referenceFile)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(reference), "`"+model+"`") {
			t.Errorf("%s does not name %s", referenceFile, model)
		}
	}
}

func TestWorkerLimit(t *testing.T) {
	c, err := config.Decode("c", []byte("concurrency: {per_worker: {codex: 2}}\nworkers: {claude: {max_concurrent: 3}}\n"), options)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[job.WorkerKind]int{"codex": 2, "claude": 3, "shell": 0} {
		if got := c.WorkerLimit(kind); got != want {
			t.Errorf("%s: got %d, want %d", kind, got, want)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if _, err := config.Load(path, options); !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("got %v, want that %s is not there", err, path)
	}
	if err := os.WriteFile(path, []byte("retry: {max: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load(path, options); err != nil || c.Retry.Max.Std() != time.Minute {
		t.Errorf("got %+v, %v", c.Retry, err)
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for env, want := range map[string]string{
		"/x": "/x/agentsched/config.yaml", "": "/home/me/.config/agentsched/config.yaml", "relative": "/home/me/.config/agentsched/config.yaml",
	} {
		t.Setenv("XDG_CONFIG_HOME", env)
		if got, err := config.DefaultPath(); err != nil || got != want {
			t.Errorf("XDG_CONFIG_HOME=%s: got %s, %v, want %s", env, got, err, want)
		}
	}
}

// TestDescription: the schema and the tables of the reference are what the
// struct says.
func TestDescription(t *testing.T) {
	schematest.Format{
		Title: "Configuration of the agent scheduler", About: "How a scheduler is set up on its host. docs/config.md explains each field.",
		Default: config.Default(),
	}.Describe(t, schemaFile, referenceFile, *update)
}

// TestReferenceThresholds gives every threshold that the reference names, which
// must change nothing.
func TestReferenceThresholds(t *testing.T) {
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	metrics := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|[^|]+\\| ([^|]+ \\| [^|]+ \\| [^|]+ \\| [^|]+) \\|$").FindAllStringSubmatch(string(data), -1)
	for _, row := range metrics {
		for i, cell := range strings.Split(row[2], " | ") {
			stage := []string{"shed", "throttle", "open_breaker", "escalate"}[i]
			enter, leave, found := strings.Cut(cell, " / ")
			if !found {
				enter, leave = "0", "0" // never
			}
			file := "watchdog: {defence: {thresholds: {" + row[1] + ": {" + stage + ": {enter: " + enter + ", leave: " + leave + "}}}}}"
			c, err := config.Decode("row", []byte(file), options)
			if err != nil {
				t.Errorf("%s says that the default is %s: %v", referenceFile, file, err)
			} else if want := config.Default(); !reflect.DeepEqual(c, want) {
				t.Errorf("%s says that the default is %s; it is %v", referenceFile, file, beyond(asJSON(t, c), asJSON(t, want)))
			}
		}
	}
	if len(metrics) != reflect.TypeFor[watchdog.Thresholds]().NumField() {
		t.Errorf("%s: found %d metrics: has its form changed?", referenceFile, len(metrics))
	}
}

// TestSchemaAccepts: an editor marks nothing that the scheduler takes.
func TestSchemaAccepts(t *testing.T) {
	schematest.Load(t, schemaFile).Accepts(t, "testdata/good.txtar")
}

func TestReferenceExample(t *testing.T) {
	data, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(data)
	if block == nil {
		t.Fatalf("no example in %s", referenceFile)
	}
	if _, err := config.Decode("example", block[1], options); err != nil {
		t.Error(err)
	}
	if parsed, err := schematest.Load(t, schemaFile).Validate(block[1]); !parsed || err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, archive := range []string{"testdata/good.txtar", "testdata/bad.txtar"} {
		for _, data := range schematest.Inputs(f, archive) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Decode("f", data, options)
		var list strictyaml.Errors
		if err != nil && !errors.As(err, &list) {
			t.Fatalf("error of type %T: %v", err, err)
		}
		if err == nil && (c.Concurrency.Max < 1 || c.Retry.Max < c.Retry.Base || c.Heartbeat.HangAfter <= c.Heartbeat.Interval) {
			t.Fatalf("accepted %+v", c)
		}
	})
}
