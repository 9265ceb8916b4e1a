package config_test

import (
	"encoding"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/strictyaml/schematest"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// with returns the options of these tests with variables.
func with(environ ...string) config.Options {
	o := options
	o.Environ = environ
	return o
}

func TestEnvironment(t *testing.T) {
	for _, tt := range []struct {
		file    string
		environ []string
		like    string // a file that says the same
		set     []string
	}{
		{"", []string{"AGENTSCHED_CONCURRENCY__MAX=4"}, "concurrency: {max: 4}", []string{"concurrency.max"}},
		{"concurrency: {max: 3, each_tenant: 1}", []string{"AGENTSCHED_CONCURRENCY__MAX=4"}, "concurrency: {max: 4, each_tenant: 1}", []string{"concurrency.max"}},
		{"api: {hosts: [a.example.com]}", []string{"AGENTSCHED_API__HOSTS=b.example.com,c.example.com"}, "api: {hosts: [b.example.com, c.example.com]}", []string{"api.hosts"}},
		{"", []string{"AGENTSCHED_API__LISTEN=127.0.0.1:7433", "AGENTSCHED_LOG__LEVEL=debug"}, "api: {listen: '127.0.0.1:7433'}\nlog: {level: debug}", []string{"api.listen", "log.level"}},
		{"workers: {codex: {env: [A], model: a}}", []string{"AGENTSCHED_WORKERS__CODEX__MODEL=gpt-5"}, "workers: {codex: {env: [A], model: gpt-5}}", []string{"workers.codex.model"}},
		{"", []string{"AGENTSCHED_WORKERS__CODEX__MODEL=5"}, "workers: {codex: {model: '5'}}", []string{"workers.codex.model"}},
		{"workers: {my-agent: {adapter: shell}}", []string{"AGENTSCHED_WORKERS__MY_AGENT__MAX_CONCURRENT=2"}, "workers: {my-agent: {adapter: shell, max_concurrent: 2}}", []string{"workers.my-agent.max_concurrent"}},
		{"policy: {tenants: {Acme.Corp: {weight: 2}}}", []string{"AGENTSCHED_POLICY__TENANTS__ACME_CORP__BUDGET__COST_USD=2.5"}, "policy: {tenants: {Acme.Corp: {weight: 2, budget: {cost_usd: 2.5}}}}", []string{`policy.tenants["Acme.Corp"].budget.cost_usd`}},
		{"", []string{"AGENTSCHED_PRICES__GPT_5_1__INPUT=7"}, "", []string{`prices["gpt-5.1"].input`}},
		{"triggers: {a: {every: 1h, job: /j}}", []string{"AGENTSCHED_TRIGGERS__A__ENABLED=false"}, "triggers: {a: {every: 1h, job: /j, enabled: false}}", []string{"triggers.a.enabled"}},
		{"triggers: {a: {job: /j}}", []string{"AGENTSCHED_TRIGGERS__A__WEBHOOK__PATH=/h", "AGENTSCHED_TRIGGERS__A__WEBHOOK__SECRET_ENV=S"}, "triggers: {a: {job: /j, webhook: {path: /h, secret_env: S}}}", []string{"triggers.a.webhook.path", "triggers.a.webhook.secret_env"}},
		{"", []string{"AGENTSCHED_LOG__LEVELS__DEAD_LETTERS=off"}, "log: {levels: {dead_letters: 'off'}}", []string{"log.levels.dead_letters"}},
		{"", []string{"AGENTSCHED_HEARTBEAT__HANG_AFTER=20s"}, "heartbeat: {hang_after: 20s}", []string{"heartbeat.hang_after"}},
		{"heartbeat: {hang_after: 20s}", []string{"AGENTSCHED_CORES__SLOW_HEARTBEAT=1s", "AGENTSCHED_CORES__MAX_RSS=3GiB"}, "heartbeat: {hang_after: 20s}\ncores: {slow_heartbeat: 1s, max_rss: 3GiB}", []string{"cores.max_rss", "cores.slow_heartbeat"}},
		// Together they are right, and the file alone is not.
		{"retry: {base: 8m}", []string{"AGENTSCHED_RETRY__MAX=10m"}, "retry: {base: 8m, max: 10m}", []string{"retry.max"}},
		// The last of two counts, and what is no override says nothing.
		{"", []string{"AGENTSCHED_RETRY__MAX=x", "AGENTSCHED_RETRY__MAX=10m", "AGENTSCHED_RUN=1", "AGENTSCHED_NO_CGROUP=1", "OTHER__NAME=1", "agentsched_LOG__LEVEL=x"}, "retry: {max: 10m}", []string{"retry.max"}},
	} {
		got, err := config.Decode("c", []byte(tt.file), with(tt.environ...))
		if err != nil {
			t.Errorf("%s with %q: %v", tt.file, tt.environ, err)
			continue
		}
		if tt.like != "" {
			if want := decode(t, tt.like); !reflect.DeepEqual(got, want) {
				t.Errorf("%s with %q: got %v beyond %s", tt.file, tt.environ, beyond(asJSON(t, want), asJSON(t, got)), tt.like)
			}
		}
		var set []string
		for _, o := range config.Overrides(got, tt.environ) {
			if set = append(set, o.Path); !slices.ContainsFunc(tt.environ, func(e string) bool { return strings.HasPrefix(e, o.Variable+"=") }) {
				t.Errorf("%q: no variable %s was given", tt.environ, o.Variable)
			}
		}
		if !slices.Equal(set, tt.set) {
			t.Errorf("%q: says that it sets %q, want %q", tt.environ, set, tt.set)
		}
	}
	if c, err := config.Decode("c", nil, with("AGENTSCHED_PRICES__GPT_5_1__INPUT=7")); err != nil || c.Prices["gpt-5.1"].Input != 7 || c.Prices["gpt-5.1"].Output != config.Default().Prices["gpt-5.1"].Output {
		t.Errorf("a price: got %+v, %v", c.Prices["gpt-5.1"], err)
	}
}

func TestEnvironmentMistakes(t *testing.T) {
	for _, tt := range []struct{ file, environ, want string }{
		{"", "AGENTSCHED_LOGG__LEVEL=debug", `AGENTSCHED_LOGG__LEVEL: "LOGG" is no field; did you mean LOG?`},
		{"", "AGENTSCHED_LOG__LEVLE=debug", `AGENTSCHED_LOG__LEVLE: "LEVLE" is no field of log; did you mean LEVEL?`},
		{"", "AGENTSCHED_LOG__X=1", `AGENTSCHED_LOG__X: "X" is no field of log; known here: FORMAT, LEVEL, LEVELS`},
		{"", "AGENTSCHED__LOG__LEVEL=debug", `AGENTSCHED__LOG__LEVEL: "_LOG" is no field; did you mean LOG?`},
		{"", "AGENTSCHED_LOG__LEVEL=loud", `AGENTSCHED_LOG__LEVEL: log.level: "loud" is unknown, want one of debug, info, warn, error, off`},
		{"log: {level: debug}", "AGENTSCHED_LOG__LEVEL=loud", `AGENTSCHED_LOG__LEVEL: log.level: "loud" is unknown, want one of debug, info, warn, error, off`},
		{"", "AGENTSCHED_LOG__LEVEL=", `AGENTSCHED_LOG__LEVEL: log.level: is empty; give a value or unset the variable`},
		{"", "AGENTSCHED_LOG__LEVEL__API=debug", `AGENTSCHED_LOG__LEVEL__API: "API" leads nowhere: log.level is a single value`},
		{"", "AGENTSCHED_LOG__LEVELS=debug", `AGENTSCHED_LOG__LEVELS: log.levels: is a group of fields, which no variable can set; set a field below it, or set it in the file`},
		{"", "AGENTSCHED_LOG__LEVELS__=debug", `AGENTSCHED_LOG__LEVELS__: a name is missing between two __`},
		{"", "AGENTSCHED_LOG__LEVELS__SERVER=debug", `AGENTSCHED_LOG__LEVELS__SERVER: log.levels.server: "server" is unknown, want one of scheduler, store, supervisor, core, nodes, process, api, hooks, triggers, upkeep, dead_letters, audit, telemetry, daemon`},
		{"", "AGENTSCHED_DEAD_LETTERS__REDRIVE=a", `AGENTSCHED_DEAD_LETTERS__REDRIVE: dead_letters.redrive: is a list, which no variable can set; set it in the file`},
		{"", "AGENTSCHED_SANDBOX__READ=/srv/a,b", `AGENTSCHED_SANDBOX__READ: sandbox.read[1]: "b" is not an absolute path, want an absolute path such as /srv/data`},
		{"", "AGENTSCHED_API__HOSTS__0=a", `AGENTSCHED_API__HOSTS__0: "0" leads nowhere: api.hosts is a list`},
		{"", "AGENTSCHED_CONCURRENCY__MAX=four", `AGENTSCHED_CONCURRENCY__MAX: concurrency.max: found "four", want a whole number`},
		{"", "AGENTSCHED_CONCURRENCY__MAX=0", `AGENTSCHED_CONCURRENCY__MAX: concurrency.max: is 0, want 1 or more`},
		{"", "AGENTSCHED_EVALUATION__ALPHA=NaN", `AGENTSCHED_EVALUATION__ALPHA: evaluation.alpha: found "NaN", want a number`},
		{"", "AGENTSCHED_AUDIT__ENABLED=yes", `AGENTSCHED_AUDIT__ENABLED: audit.enabled: found "yes", want true or false`},
		{"", "AGENTSCHED_RETRY__MAX=10", `AGENTSCHED_RETRY__MAX: retry.max: "10" is not a duration, want a number with a unit such as 90s, 15m or 1h30m`},
		{"", "AGENTSCHED_CORES__MAX_RSS=-1", `AGENTSCHED_CORES__MAX_RSS: cores.max_rss: "-1" is not a size, want a whole number of bytes or one with a unit such as 512MiB or 2GiB`},
		// The variable is why there is a worker at all: it is to blame for what is missing.
		{"workers: {codex: {}}", "AGENTSCHED_WORKERS__REVIEWER__MODEL=m", `AGENTSCHED_WORKERS__REVIEWER__MODEL: workers.reviewer.adapter: is missing: no adapter has the name reviewer, so say which drives it, one of codex, claude, opencode, shell, exec`},
		// Here the file is.
		{"workers: {reviewer: {env: [A]}}", "AGENTSCHED_WORKERS__REVIEWER__MODEL=m", `c:1:21: workers.reviewer.adapter: is missing: no adapter has the name reviewer, so say which drives it, one of codex, claude, opencode, shell, exec`},
		{"policy: {tenants: {a-b: {}, a.b: {}}}", "AGENTSCHED_POLICY__TENANTS__A_B__WEIGHT=1", `AGENTSCHED_POLICY__TENANTS__A_B__WEIGHT: "A_B" can mean a-b or a.b; set it in the file`},
		{"concurrency: {per_worker: {codex: 2}}", "AGENTSCHED_WORKERS__CODEX__MAX_CONCURRENT=3", `c:1:35: concurrency.per_worker.codex: is 2, but workers.codex.max_concurrent in AGENTSCHED_WORKERS__CODEX__MAX_CONCURRENT says 3; remove one`},
		{"retry: {base: 8m}", "AGENTSCHED_RETRY__MAX=7m", `AGENTSCHED_RETRY__MAX: retry.max: max 7m0s is shorter than base 8m0s`},
		// Mistakes of both are told at once.
		{"log: {format: text}", "AGENTSCHED_LOG__LEVEL=loud", "c:1:15: log.format: \"text\" is unknown, want auto, json or console\n" +
			`AGENTSCHED_LOG__LEVEL: log.level: "loud" is unknown, want one of debug, info, warn, error, off`},
	} {
		_, err := config.Decode("c", []byte(tt.file), with(tt.environ))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s with %s:\ngot  %v\nwant %s", tt.file, tt.environ, err, tt.want)
		}
		if name, _, _ := strings.Cut(tt.environ, "="); err != nil && strings.HasPrefix(tt.want, name) {
			if of, ok := errors.AsType[*config.VariableError](err); !ok || of.Variable != name {
				t.Errorf("%s: the error says that it is of %+v", tt.environ, of)
			}
		}
	}
}

func TestVariablesRepeatNoSecret(t *testing.T) {
	for _, environ := range []string{
		"AGENTSCHED_WORKERS__CODEX__BASE_URL=https://u:hunter2@h/", "AGENTSCHED_ESCALATION__WEBHOOK=hunter2", "AGENTSCHED_TELEMETRY__OTLP__ENDPOINT=hunter2",
		"AGENTSCHED_TELEMETRY__OTLP__HEADERS__AUTHORIZATION=Bearer hunter2",
	} {
		if _, err := config.Decode("c", nil, with(environ)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", environ, err)
		}
	}
}

// TestWithoutFile: what is left is the default, and paths start from here.
func TestWithoutFile(t *testing.T) {
	if c, err := config.WithoutFile(options); err != nil || !reflect.DeepEqual(c, config.Default()) {
		t.Errorf("got %+v, %v, want the default", c, err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	tls := []string{"AGENTSCHED_API__LISTEN=127.0.0.1:1", "AGENTSCHED_API__TLS__CERT=c.pem", "AGENTSCHED_API__TLS__KEY=/k.pem"}
	c, err := config.WithoutFile(with(tls...))
	if want := (config.TLS{Cert: filepath.Join(dir, "c.pem"), Key: "/k.pem"}); err != nil || c.API.TLS != want {
		t.Errorf("got %+v, %v, want %+v", c.API.TLS, err, want)
	}
	path := filepath.Join(dir, "sub", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load(path, with(tls...)); err != nil || c.API.TLS.Cert != filepath.Join(dir, "sub", "c.pem") {
		t.Errorf("got %+v, %v, want the certificate beside the file", c.API.TLS, err)
	}
	_, err = config.WithoutFile(with("AGENTSCHED_HEARTBEAT__INTERVAL=1m"))
	if err == nil || err.Error() != "AGENTSCHED_HEARTBEAT__INTERVAL: heartbeat.interval: hang_after 10s is not longer than interval 1m0s: every core would seem to hang" {
		t.Errorf("got %v", err)
	}
}

// TestEveryScalarCanBeSet gives each field of a full configuration another value
// by its variable: that field changes, and no other.
func TestEveryScalarCanBeSet(t *testing.T) {
	inputs := schematest.Inputs(t, "testdata/good.txtar")
	file := slices.Concat(inputs["everything"], inputs["daemon"])
	full := decode(t, string(file))
	taken, refused := 0, 0
	for _, one := range scalars(reflect.ValueOf(full), nil) {
		entry, path := one.variable()+"="+other(one.value), one.path()
		c, err := config.Decode("c", file, with(entry))
		if err != nil {
			// It does not go together with others. What it was taken for is right.
			message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), one.variable()+": "), path+": ")
			if strings.HasPrefix(message, "found") || strings.HasPrefix(message, "is a ") || strings.Contains(message, "is no field") || strings.Contains(message, "leads nowhere") {
				t.Errorf("%s: %v", entry, err)
			}
			refused++
			continue
		}
		reload, restart := config.Changes(full, c)
		if changed := append(reload, restart...); len(changed) != 1 || !strings.HasPrefix(path, changed[0]) {
			t.Errorf("%s: changed %q", entry, changed)
		}
		if o := config.Overrides(c, []string{entry}); len(o) != 1 || o[0] != (config.Override{Variable: one.variable(), Path: path}) {
			t.Errorf("%s: says that it sets %v, want %s", entry, o, path)
		}
		taken++
	}
	if taken < 150 || refused > taken {
		t.Errorf("%d fields took a value and %d refused it: does the walk find them?", taken, refused)
	}
}

// scalar is a field with a single value.
type scalar struct {
	names []string
	value reflect.Value
}

func (s scalar) path() string {
	path := ""
	for _, name := range s.names {
		path = fields.Join(path, name)
	}
	return path
}

func (s scalar) variable() string {
	var steps []string
	for _, name := range s.names {
		steps = append(steps, regexp.MustCompile("[^A-Z0-9]").ReplaceAllString(strings.ToUpper(name), "_"))
	}
	return "AGENTSCHED_" + strings.Join(steps, "__")
}

// other returns, as a variable has it, another value than v.
func other(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case job.Duration:
		return (x + job.Duration(time.Millisecond)).String()
	case config.Size:
		return (x + 1).String()
	case policy.RedriveRate:
		return "7/h"
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.FormatBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int()+1, 10)
	case reflect.Float64:
		return strconv.FormatFloat(v.Float()*0.9375+0.001, 'g', -1, 64)
	}
	if v.String() == string(logging.Info) || v.String() == string(logging.Warn) {
		return string(logging.Debug)
	}
	return v.String() + "x"
}

func scalars(v reflect.Value, names []string) []scalar {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		v = v.Elem()
	}
	var list []scalar
	switch {
	case reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return []scalar{{names, v}}
	case v.Kind() == reflect.Struct:
		for _, f := range fields.Of(v.Type()) {
			list = append(list, scalars(v.FieldByIndex(f.Index), append(slices.Clone(names), f.Name))...)
		}
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			list = append(list, scalars(v.MapIndex(key), append(slices.Clone(names), key.String()))...)
		}
	case v.Kind() != reflect.Slice:
		return []scalar{{names, v}}
	}
	return list
}

// Whatever a variable is called and holds, the answer is a configuration or a
// mistake that names it, and never a panic.
func TestAnyVariable(t *testing.T) {
	steps := rapid.SampledFrom([]string{"LOG", "LEVEL", "LEVELS", "API", "TLS", "CERT", "WORKERS", "CODEX", "TRIGGERS", "A", "WATCH", "PRICES", "GPT_5", "INPUT", "COST_WINDOWS", "0", "", "log", "é", "WATCHDOG", "DEFENCE", "THRESHOLDS", "RATES", "ENABLED"})
	rapid.Check(t, func(t *rapid.T) {
		name := "AGENTSCHED_" + strings.Join(rapid.SliceOfN(steps, 2, 6).Draw(t, "steps"), "__")
		entry := name + "=" + rapid.OneOf(rapid.SampledFrom([]string{"", "1", "true", "1s", "1GiB", "debug", "-1", "[a]"}), rapid.String()).Draw(t, "value")
		c, err := config.Decode("c", []byte("workers: {codex: {}}"), with(entry))
		if err == nil {
			if o := config.Overrides(c, []string{entry}); len(o) != 1 || o[0].Variable != name {
				t.Fatalf("%q was taken, but sets %v", entry, o)
			}
			return
		}
		if of, ok := errors.AsType[*config.VariableError](err); !ok || of.Variable != name {
			t.Fatalf("%q: %v", entry, err)
		}
	})
}
