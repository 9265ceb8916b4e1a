package trigger

import (
	"path/filepath"
	"reflect"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// Name names a trigger, e.g. "nightly-review": 1 to 64 of a-z 0-9 and, not
// first, "-", "_" and ".".
type Name string

// FieldTag says what the name of a trigger is.
func (Name) FieldTag() reflect.StructTag {
	return `match:"^[a-z0-9][a-z0-9_.-]{0,63}$" is:"a name of a trigger" want:"1 to 64 of a-z 0-9 and, not first, . - _"`
}

// Settings of one trigger. Exactly one of Cron, Every, Watch, Webhook and
// Command is given: its source.
type Settings struct {
	// Five fields such as `0 9 * * MON-FRI`, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`.
	Cron string `json:"cron,omitempty"`
	// The time zone of `cron`, such as `Europe/Berlin`.
	Zone string `json:"zone,omitempty" otherwise:"the host's"`

	// An interval such as `15m`, at least `1s`.
	Every job.Duration `json:"every,omitempty" min:"1s"`
	// Changes of files.
	Watch *Watch `json:"watch,omitempty"`
	// A signed HTTP request.
	Webhook *Webhook `json:"webhook,omitempty"`
	// A shell command that is run again and again.
	Command *Command `json:"command,omitempty"`

	// What becomes of times that passed unseen: `skip`, `once`, `all`.
	Misfire Misfire `json:"misfire,omitempty"`
	// The most that `all` makes up for, the newest, up to `1000`.
	MisfireMax int `json:"misfire_max,omitempty" min:"1" max:"1000" zero:"100"`

	// The job file whose jobs are submitted.
	Job string `json:"job" need:"the path of a job file such as nightly.yaml" match:"[^ ]" is:"a path"`
	// Not while a job of this trigger is queued or running.
	//
	// Submit sees to it, and says so with ErrActive.
	UnlessActive bool `json:"unless_active,omitempty"`
	// The event is appended to the instructions; a job of type `PLUGIN_EVENT` is given it as a file.
	WithEvent bool `json:"with_event,omitempty"`
	// When it is isolated, since its jobs keep failing; left out, as by default.
	Breaker *Breaker `json:"breaker,omitempty"`
	// `false` for one that does not fire.
	Enabled *bool `json:"enabled,omitempty"`
}

// Watch is what happens to files.
type Watch struct {
	// Files, folders and patterns such as `src/**/*.go`. A folder stands for what is in it. In a
	// pattern `*`, `?` and `[a-z]` stand for parts of one name, and `**` for any number of folders.
	Paths []string `json:"paths" need:"files, folders or patterns such as [src, docs/*.md]" items:"1"`
	// Folders stand for everything below them.
	Recursive bool `json:"recursive,omitempty"`
	// Patterns of names at any depth, or with a `/` of paths below the folder.
	Ignore []string `json:"ignore,omitempty"`
	// Of `create`, `write`, `remove`, `rename`, `chmod`.
	Changes []Change `json:"changes,omitempty" otherwise:"all but chmod"`
	// How long it must have been quiet. A stream of changes that does not end fires after ten times as
	// long.
	Debounce job.Duration `json:"debounce,omitempty"`
}

// Webhook is an HTTP request whose body is signed with a shared secret.
type Webhook struct {
	// Of the URL, such as `/hooks/deploy`.
	Path string `json:"path" need:"a path such as /hooks/deploy" match:"^/[A-Za-z0-9._~/-]+$" is:"a path for it" want:"one such as /hooks/deploy"`
	// The name of the variable that holds the secret.
	SecretEnv string `json:"secret_env,omitempty" form:"variable" want:"the name of the variable that holds the secret, such as DEPLOY_SECRET, not the secret itself"`
	// Or a file with mode 0600 that holds it.
	SecretFile string `json:"secret_file,omitempty"`
	// Demands a signed timestamp that is no older, at most `1h`; `0s` none.
	MaxAge job.Duration `json:"max_age,omitempty" max:"1h" zero:"none"`
	// A longer body is refused; at most `26214400`.
	MaxBodyBytes int `json:"max_body_bytes,omitempty" min:"1" max:"26214400" zero:"1048576"`
	// Of `POST` and `PUT`.
	Methods []string `json:"methods,omitempty" words:"POST PUT"`
}

// Command is a shell command that is run again and again.
type Command struct {
	// The command.
	Run string `json:"run" need:"a shell command such as git ls-remote origin main" match:"[^ ]" is:"a command" want:"a shell command such as git ls-remote origin main"`
	// Where it runs.
	Dir string `json:"dir,omitempty" otherwise:"the configuration file's folder"`
	// From the end of a run to the next, at least `1s`.
	Every job.Duration `json:"every" need:"how long to wait between two runs, 1s or more" min:"1s"`
	// After which it is killed, with all that it started.
	Timeout job.Duration `json:"timeout,omitempty"`
	// Which run fires: `change` of its output, any `output`, or each `success`.
	When When `json:"when,omitempty"`
}

// Misfire is what becomes of times that passed unseen.
type Misfire string

const (
	// Skip drops them.
	Skip Misfire = "skip"
	// Once fires once for all of them, with the last one's time. The default.
	Once Misfire = "once"
	// CatchUp fires for each, the oldest first, the last MisfireMax of them.
	CatchUp Misfire = "all"
)

// FieldTag lists the choices.
func (Misfire) FieldTag() reflect.StructTag { return fields.Enum(Misfires()...) }

// Misfires lists the choices.
func Misfires() []Misfire { return []Misfire{Skip, Once, CatchUp} }

// Change is something that happens to a file.
type Change string

// What can happen to a file. A program that saves by moving a new file into
// place makes a Create.
const (
	Create Change = "create"
	Write  Change = "write"
	Remove Change = "remove"
	Rename Change = "rename" // away
	Chmod  Change = "chmod"
)

// FieldTag lists every change.
func (Change) FieldTag() reflect.StructTag { return fields.Enum(Changes()...) }

// Changes lists every change.
func Changes() []Change { return []Change{Create, Write, Remove, Rename, Chmod} }

// When says which run of a command fires. One that fails never does, it is an
// error of the trigger.
type When string

const (
	// OnChange fires when the standard output is not what it was in the run
	// before. The first run only shows what it is.
	OnChange When = "change"
	// OnOutput fires when there is standard output other than white space.
	OnOutput When = "output"
	// OnSuccess fires after each run with exit code 0.
	OnSuccess When = "success"
)

// FieldTag lists the choices.
func (When) FieldTag() reflect.StructTag { return fields.Enum(Whens()...) }

// Whens lists the choices.
func Whens() []When { return []When{OnChange, OnOutput, OnSuccess} }

// IsEnabled reports whether the trigger fires.
func (s Settings) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// Source returns the name of the source: cron, every, watch, webhook or
// command; "" if there is none.
func (s Settings) Source() string {
	if given := s.sources(); len(given) > 0 {
		return given[0]
	}
	return ""
}

func (s Settings) sources() []string {
	var given []string
	for _, one := range []struct {
		name string
		is   bool
	}{{"cron", s.Cron != ""}, {"every", s.Every != 0}, {"watch", s.Watch != nil}, {"webhook", s.Webhook != nil}, {"command", s.Command != nil}} {
		if one.is {
			given = append(given, one.name)
		}
	}
	return given
}

// Kind returns the trigger kind that the jobs of s get.
func (s Settings) Kind() job.Trigger {
	if s.timed() {
		return job.ByCron
	}
	return job.ByEvent
}

func (s Settings) timed() bool { return s.Cron != "" || s.Every != 0 }

func (s Settings) equal(o Settings) bool { return reflect.DeepEqual(s, o) }

// Resolved returns s with its paths taken relative to the folder base, which is
// absolute.
func (s Settings) Resolved(base string) Settings {
	abs := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(base, path)
	}
	s.Job = abs(s.Job)
	if s.Watch != nil {
		w := *s.Watch
		w.Paths = make([]string, len(s.Watch.Paths))
		for i, path := range s.Watch.Paths {
			w.Paths[i] = abs(path)
		}
		s.Watch = &w
	}
	if s.Webhook != nil {
		w := *s.Webhook
		w.SecretFile = abs(w.SecretFile)
		s.Webhook = &w
	}
	if s.Command != nil {
		c := *s.Command
		if c.Dir == "" {
			c.Dir = base
		}
		c.Dir = abs(c.Dir)
		s.Command = &c
	}
	return s
}
