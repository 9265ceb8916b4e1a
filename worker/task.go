package worker

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Task is one attempt of one job, as an adapter is asked to run it. It is read only.
//
// What a person or another agent wrote (Name, Instructions, SystemPrompt, Output,
// Session) may hold anything: quotes, dashes at the beginning, newlines, a megabyte.
// It belongs on standard input or into a file, not into a command line where it
// could be taken for a flag. What a program cannot enforce of Capabilities and
// AllowCommands must make Start refuse the task, with class CONFIG.
type Task struct {
	Job     job.ID
	Name    job.Name
	Attempt int
	Kind    job.WorkerKind
	Model   string // "" is the program's own default

	Instructions string // with the feedback on the last attempt, if there was one
	SystemPrompt string

	Dir     string // the workspace: where the program works
	Home    string // private folder (0700) of this job on this kind; its content is that of the attempt whose session is resumed, else empty
	Scratch string // private folder of this attempt, for files that the adapter needs
	Session string // the program's own session or thread to resume; "" starts a new one
	// Fork says that Session is another job's, which stays as it is: the program goes on in
	// a copy of it, with an id of its own. It is set only for an adapter that says Forks.
	Fork bool
	// Asked says that the job has people or rules answer what it was not granted, so the program
	// is to ask rather than to refuse by itself: see Ask.
	Asked bool
	// Moved is the workspace in which Session worked, if that was another, on another host: see Portable. Else "".
	Moved string

	// Capabilities are all that the job was granted; see Can. AllowCommands bounds
	// CanRunCommands, and is empty for no bound; see CommandPatterns.
	Capabilities  []job.Capability
	AllowCommands []string
	Output        json.RawMessage // JSON schema that the answer must satisfy; empty: text
	// Limits are what is left of the job's, for programs that can keep to one. The
	// Runner enforces them in any case.
	Limits job.Limits

	// Streams says that the run's program is the worker of a stream of events: see
	// StreamLines and Forward. It is set only for an adapter that is Streaming.
	Streams bool
	// Steps are the durable steps that the job has finished so far, ordered by id.
	Steps []Step

	// Environ is the environment to build the program's from: NAME=VALUE of
	// what every program needs (see BaseEnv) and of what the job and the
	// settings pass through.
	Environ []string
	// Lookup finds a variable of the core's own environment (os.LookupEnv);
	// nil finds nothing.
	Lookup func(name string) (string, bool)
	// Settings are the configuration's for this kind of worker, the first word of
	// Command included, which Locate looks for.
	Settings job.WorkerSettings

	// Models, if not nil, is where the run reaches its models, and nowhere else. No
	// login and no key of the user's is given to the program then.
	Models *ModelEndpoint
	// Tools, if not nil, is a server of MCP whose tools the program may use. What of it needs the
	// program's leave is granted. Environ has ToolURLVariable and ToolKeyVariable.
	Tools *ToolServer
	// Confined says that a sandbox holds the run to what the job was granted: the
	// program's own sandbox, which cannot be nested, is off. HOME and the XDG folders of
	// Environ are private ones (see UserEnv), and the user's own do not exist for the
	// run. An adapter copies what it needs of them, and links nothing.
	Confined bool
}

// Can reports whether the job was granted c.
func (t *Task) Can(c job.Capability) bool { return slices.Contains(t.Capabilities, c) }

// CommandPatterns returns the patterns of the commands that the job may run,
// and whether it may run any command at all without a pattern.
func (t *Task) CommandPatterns() (patterns []string, any bool) {
	patterns = slices.Clone(t.AllowCommands)
	if t.Can(job.CanRunTests) {
		patterns = append(patterns, job.TestCommands()...)
	}
	return patterns, t.Can(job.CanRunCommands) && len(t.AllowCommands) == 0
}

// Of returns what the task grants to a subagent: no more than to the job itself. One with capabilities of its own may run the
// job's AllowCommands only with CanRunCommands.
func (t *Task) Of(a *job.Subagent) *Task {
	its := *t
	its.Capabilities, its.Settings.Subagents = a.Allowed(t.Capabilities), nil
	if a.Capabilities != nil && !slices.Contains(a.Capabilities, job.CanRunCommands) {
		its.AllowCommands = nil
	}
	return &its
}

// RetryAfter is when a provider asked to be left alone until: a moment, or a
// time from the end of the run.
type RetryAfter struct {
	At    time.Time
	After time.Duration // used when At is zero
}

// baseVariables are passed to every worker: what programs need to find their
// files, speak the user's language and reach the network the user's way.
var baseVariables = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM",
	"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
	"SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
}

// BaseEnv returns from environ (as os.Environ gives it) the variables that
// every worker gets, the LC_ ones, and those named by names. Nothing else of
// the scheduler's environment reaches a worker.
func BaseEnv(environ []string, names ...string) []string {
	var env []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "LC_") || slices.Contains(baseVariables, name) || slices.Contains(names, name) {
			env = append(env, kv)
		}
	}
	return env
}

// Getenv returns the value of name in Environ, else what Lookup knows: so an
// adapter finds the variables that only its own program needs, e.g. its API
// key, which no other worker gets.
func (t *Task) Getenv(name string) string {
	for _, kv := range t.Environ {
		if n, v, ok := strings.Cut(kv, "="); ok && n == name {
			return v
		}
	}
	if t.Lookup == nil {
		return ""
	}
	v, _ := t.Lookup(name)
	return v
}

// UserEnv returns the value of a variable that names a folder of the user's, e.g. HOME.
// Environ has other folders for a confined run, so that only Lookup counts for it.
func (t *Task) UserEnv(name string) string {
	if !t.Confined {
		return t.Getenv(name)
	}
	return (&Task{Lookup: t.Lookup}).Getenv(name)
}

// SetEnv returns env with name set to value, replacing an earlier value.
func SetEnv(env []string, name, value string) []string {
	return append(UnsetEnv(env, name), name+"="+value)
}

// UnsetEnv returns env without the named variables.
func UnsetEnv(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}
