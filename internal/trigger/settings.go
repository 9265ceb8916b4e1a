package trigger

import (
	"path/filepath"
	"reflect"

	"github.com/agentsched/agentsched/job"
)

// Name names a trigger, e.g. "nightly-review": 1 to 64 of a-z 0-9 and, not
// first, "-", "_" and ".".
type Name string

// Settings of one trigger. Exactly one of Cron, Every, Watch, Webhook and
// Command is given: its source.
type Settings struct {
	// Cron is an expression of five fields, e.g. "0 9 * * MON-FRI", or one of
	// @hourly, @daily, @weekly, @monthly and @yearly; in Zone, an IANA name such
	// as "Europe/Berlin", or the host's own if "".
	Cron string `json:"cron,omitempty"`
	Zone string `json:"zone,omitempty"`

	Every   job.Duration `json:"every,omitempty"` // at least a second
	Watch   *Watch       `json:"watch,omitempty"`
	Webhook *Webhook     `json:"webhook,omitempty"`
	Command *Command     `json:"command,omitempty"`

	// Misfire says what becomes of times (Cron, Every) that passed while nobody
	// looked; MisfireMax bounds CatchUp, 0 for DefaultMisfireMax.
	Misfire    Misfire `json:"misfire,omitempty"`
	MisfireMax int     `json:"misfire_max,omitempty"`

	// Job is the path of the job file whose jobs are submitted.
	Job string `json:"job"`
	// UnlessActive asks for no submission while a job of this trigger is queued
	// or running. Submit sees to it, and says so with ErrActive.
	UnlessActive bool `json:"unless_active,omitempty"`
	// WithEvent appends Firing.Event to the instructions of the jobs.
	WithEvent bool `json:"with_event,omitempty"`
	// Enabled is nil or true for a trigger that fires.
	Enabled *bool `json:"enabled,omitempty"`
}

// Watch is what happens to files.
type Watch struct {
	// Paths are files, folders and patterns. A folder stands for what is in it,
	// with Recursive for everything below it. In a pattern "*", "?" and "[a-z]"
	// stand for parts of one name, and "**" for any number of folders.
	Paths     []string `json:"paths"`
	Recursive bool     `json:"recursive,omitempty"`
	// Ignore are patterns: without "/" of a name at any depth, else of a whole
	// path below the folder. nil is DefaultIgnore.
	Ignore []string `json:"ignore,omitempty"`
	// Changes are those that count; nil is all but Chmod.
	Changes []Change `json:"changes,omitempty"`
	// Debounce is how long it must have been quiet; 0 is DefaultDebounce. A
	// stream of changes that does not end fires after ten times as long.
	Debounce job.Duration `json:"debounce,omitempty"`
}

// Webhook is an HTTP request whose body is signed with a shared secret.
type Webhook struct {
	Path       string `json:"path"`                  // of the URL, e.g. "/hooks/deploy"
	SecretEnv  string `json:"secret_env,omitempty"`  // name of the variable that holds the secret
	SecretFile string `json:"secret_file,omitempty"` // or a file that only its owner may read
	// MaxAge asks for a timestamp that is signed too and no older; 0 asks for none.
	MaxAge       job.Duration `json:"max_age,omitempty"`
	MaxBodyBytes int          `json:"max_body_bytes,omitempty"` // 0 is DefaultMaxBody
	Methods      []string     `json:"methods,omitempty"`        // of POST and PUT; nil is POST
}

// Command is a shell command that is run again and again.
type Command struct {
	Run     string       `json:"run"`               // by sh -c
	Dir     string       `json:"dir,omitempty"`     // where; "" is the configuration file's folder
	Every   job.Duration `json:"every"`             // from one end to the next beginning
	Timeout job.Duration `json:"timeout,omitempty"` // 0 is DefaultTimeout
	When    When         `json:"when,omitempty"`    // "" is OnChange
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
