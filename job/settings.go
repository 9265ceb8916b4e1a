package job

import "slices"

// WorkerSettings is what the configuration says about one kind of worker.
// The zero value means: find the program on PATH and use the user's own login.
type WorkerSettings struct {
	// The adapter that drives this kind: `codex`, `claude`, `opencode`, `acp`, `shell`, `exec`. A host
	// can have several kinds of one adapter.
	Adapter string `json:"adapter,omitempty" otherwise:"the one of the kind's name"`
	// The program, an absolute path or a name on `PATH`, and its leading arguments. Required for
	// `acp` and `exec`.
	Command []string `json:"command,omitempty" items:"1" want:"the program and its leading arguments, or leave it out" otherwise:"the adapter's, on PATH"`
	// The model of jobs that name none.
	Model string `json:"model,omitempty" otherwise:"the program's own"`
	// Another model endpoint, e.g. a gateway.
	BaseURL string `json:"base_url,omitempty" otherwise:"the program's own"`
	// The name of the variable that holds the key for `base_url`. Keys themselves do not belong in the
	// file.
	KeyEnv string `json:"key_env,omitempty" form:"variable" want:"the name of the variable that holds the key, such as GATEWAY_KEY, not the key itself"`
	// The accounts that pay for the models of runs that a sandbox holds, instead of `key_env` or the login: each a variable
	// of the scheduler (`env`), a file (`file`) or a command that prints the key (`command`). A run stays with one until it
	// is used up; then the next is taken, until the first may be used again.
	Keys []ModelKey `json:"keys,omitempty" items:"1"`
	// Models that runs which a sandbox holds may ask besides that of their job, such as `claude-haiku-*`; `*` stands for any
	// text.
	Models []string `json:"models,omitempty" otherwise:"any"`
	// Agents that the one of a job may hand parts of its work to, by name, for `claude` and `opencode`. What they use is the job's.
	Subagents map[string]Subagent `json:"subagents,omitempty" keys:"match:\"^[a-z][a-z0-9-]{0,63}$\" is:\"a name\" want:\"1 to 64 of a-z and, not first, 0-9 -, such as reviewer\""`
	// Names of variables that are passed on to every job of this kind.
	Env []string `json:"env,omitempty" form:"variable"`
	// Jobs that run at once on this kind.
	MaxConcurrent int `json:"max_concurrent,omitempty" min:"1" want:"1 or more; leave it out for no bound of its own" otherwise:"no bound"`
}

// Subagent is an agent for one kind of task.
type Subagent struct {
	// The kind of task, for the agent that is to choose: `runs the tests and says what fails`.
	When string `json:"when" need:"for which kind of task it is, such as 'finds where something is defined'"`
	// What it is told before the task.
	Instructions string `json:"instructions,omitempty"`
	// What it may do, of what the job may.
	Capabilities []Capability `json:"capabilities,omitempty" otherwise:"what the job may"`
}

// Allowed returns what a subagent may do of what its job may.
func (a *Subagent) Allowed(of []Capability) []Capability {
	if a.Capabilities == nil {
		return of
	}
	return slices.DeleteFunc(slices.Clone(of), func(c Capability) bool { return !slices.Contains(a.Capabilities, c) })
}

// ModelKey is where a key for models is found: exactly one of its fields.
type ModelKey struct {
	// The name of a variable of the scheduler.
	Env string `json:"env,omitempty" form:"variable" want:"the name of the variable that holds the key, such as WORK_KEY, not the key itself"`
	// A file that holds it, an absolute path, read at each request.
	File string `json:"file,omitempty" match:"^/" is:"an absolute path" want:"an absolute path such as /etc/agentsched/key"`
	// A program that prints it, and its arguments; it is run once, and again when the key was refused.
	Command []string `json:"command,omitempty" items:"1" want:"a program and its arguments, such as [pass, show, openai]"`
}

// WorkerTraits are what the scheduler has to know of a kind of worker before it
// gives it a job. The kind's adapter says them; the zero value is an agent that
// does one task after the other.
type WorkerTraits struct {
	// Script says that instructions are a shell script: what an expression gives is
	// passed in a variable, and text from outside is never put into them.
	Script bool
	// Streams says that the worker can take part in a stream of events: it may be
	// that of a pipeline's stage with streams: true.
	Streams bool
	// NeedsCommand says that there is no program of the adapter's own: the settings
	// must name one.
	NeedsCommand bool
	// ClosedSchemas says that the worker takes an answer's schema only if each
	// object of it forbids properties that it does not name.
	ClosedSchemas bool
	// Forks says that the worker can go on from a copy of another job's session in another
	// folder.
	Forks bool
}

// ShellWorker is the kind of worker that runs jobs of a type that is a command.
const ShellWorker WorkerKind = "shell"

// Price is what a model's tokens cost, in US dollars per million tokens. It is
// used where a worker prints tokens but no cost.
type Price struct {
	// Input that is not cached.
	Input float64 `json:"input" need:"US dollars per million tokens" min:"0" want:"US dollars per million tokens, 0 or more"`
	// Input read from a cache.
	CachedRead *float64 `json:"cached,omitempty" min:"0" want:"US dollars per million tokens, 0 or more" otherwise:"as input"`
	// Input written to a cache.
	CacheWrite *float64 `json:"cache_write,omitempty" min:"0" want:"US dollars per million tokens, 0 or more" otherwise:"as input"`
	// Output, reasoning included.
	Output float64 `json:"output" need:"US dollars per million tokens" min:"0" want:"US dollars per million tokens, 0 or more"`
}

// Cost returns the price of u's tokens in US dollars.
func (p Price) Cost(u Usage) float64 {
	rate := func(r *float64) float64 {
		if r == nil {
			return p.Input
		}
		return *r
	}
	plain := u.InputTokens - u.CachedTokens - u.CacheWriteTokens
	sum := float64(max(plain, 0))*p.Input +
		float64(u.CachedTokens)*rate(p.CachedRead) +
		float64(u.CacheWriteTokens)*rate(p.CacheWrite) +
		float64(u.OutputTokens)*p.Output
	return sum / 1e6
}
