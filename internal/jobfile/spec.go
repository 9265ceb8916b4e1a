package jobfile

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// MaxInstructions bounds a job's instructions, in bytes.
const MaxInstructions = 256 << 10

// reader turns the fields of one file into jobs and records what is wrong.
type reader struct {
	*strictyaml.Doc
	file string
	base string // absolute
	*batch
}

func (r *reader) specs(f *file) []job.Spec {
	tenant := f.Tenant
	if tenant == "" {
		tenant = job.DefaultTenant
	}
	if r.Blamed("tenant") {
		tenant = job.DefaultTenant // said once, not for each job
	}
	var specs []job.Spec
	for i := range f.Jobs {
		path := fmt.Sprintf("jobs[%d]", i)
		if !r.Blamed(path) {
			specs = append(specs, r.spec(path, tenant, &f.Jobs[i]))
		}
	}
	return specs
}

// spec returns one job with its defaults. Where its type or its agent is not
// known, only its id is looked at: most of the other rules depend on these.
func (r *reader) spec(path string, tenant job.Tenant, e *entry) job.Spec {
	r.checkID(path, e.ID)
	agent := r.agents[e.Agent]
	if r.Blamed(path+".type") || agent != nil && agent.broken {
		return job.Spec{}
	}
	r.mergeDefaults(path, e, agent)
	if e.Type == "" {
		e.Type = jobType(job.WorkerTask)
	}
	if agent != nil {
		agent.adopt(e)
		r.checkAgent(path, e, agent)
	}
	r.best(path, e)
	from := r.origin(path, e)
	s := job.Spec{
		Name: e.ID, Tenant: tenant, Type: job.Type(e.Type),
		Worker: job.WorkerKind(e.Worker), Model: e.Model,
		Workspace:     r.workspace(path+".workspace", e),
		Node:          e.Node,
		Instructions:  r.instructions(path+".instructions", e.Instructions),
		SystemPrompt:  e.SystemPrompt,
		AllowCommands: e.Allow, Env: e.Env, Priority: e.Priority, Class: e.Class,
		Sandbox: e.Sandbox, Network: e.Network, Ask: e.Ask, Git: e.Git, Secrets: e.Secrets,
		Agent: e.Agent, Domain: e.Domain, Expect: e.Expect,
		RunnableAt: r.timeOrDuration(path+".runnable_at", e.RunnableAt),
		Deadline:   r.timeOrDuration(path+".deadline", e.Deadline),
		Limits:     e.Limits,
		Key:        e.Key, OnDuplicate: e.OnDuplicate, Turn: e.Turn,
		Output: e.Output.schema, Verify: e.Verify, Trace: e.Trace, Context: e.Context, Payload: e.Payload.json,
		Fallback: choices(e.Fallback), Flow: r.flow(path, e),
	}
	if s.Type.Command() && s.Worker == "" && !r.Blamed(path+".worker") {
		s.Worker = job.ShellWorker
	}
	r.capabilities(path, e, &s)
	r.checkWorkers(path, e, &s)
	if s.Ask.IsZero() && r.Has(path+".ask") {
		r.Failf(path+".ask", "is empty, want what a person is asked about, such as {for: [commands, writes]}, or rules that answer instead")
	}
	if s.Deadline != nil && !s.Deadline.After(r.now) {
		r.Failf(path+".deadline", "%s is in the past (it is %s now)", e.Deadline.text, r.now.Format(time.RFC3339))
	}
	errs := s.Validate()
	if len(errs) == 0 && r.opts.Grants != nil {
		errs = r.opts.Grants(&s)
	}
	for _, bad := range errs {
		from.fail(bad.Field, bad.Message)
	}
	if len(errs) == 0 {
		r.checkDuplicate(path, &s)
	}
	return s
}

func choices(list []choice) []job.Choice {
	var all []job.Choice
	for _, c := range list {
		all = append(all, job.Choice(c))
	}
	return all
}

// checkDuplicate refuses a job that could not be taken beside one before it.
func (r *reader) checkDuplicate(path string, s *job.Spec) {
	policy, key := s.Duplicates()
	if policy == job.RunEach {
		return
	}
	at := path + ".key"
	if s.Key == "" {
		at = path + ".on_duplicate"
	}
	of := tenantKey{s.Tenant, key}
	first, twice := r.keys[of]
	if !twice {
		r.keys[of] = r.place(at)
		return
	}
	if policy == job.Reject {
		r.Failf(at, "the job at %s has the same key, %q, so that this one would be rejected; jobs with on_duplicate reject that are submitted together need keys of their own", first, key)
	}
}

// place returns where a field stands, with its file.
func (r *reader) place(path string) string {
	pos := r.At(path)
	return fmt.Sprintf("%s:%d:%d", r.file, pos.Line, pos.Column)
}

// checkID looks at an id and remembers where it stands.
func (r *reader) checkID(path string, name job.Name) {
	at := path + ".id"
	if name == "" {
		r.Failf(at, "is missing, want a name for the job such as fix-login")
		return
	}
	if err := job.ValidName(string(name)); err != nil {
		r.Failf(at, "%v", err)
		return
	}
	if first, twice := r.ids[name]; twice {
		r.Failf(at, "%q is the id of the job at %s already; ids are unique among the jobs that are submitted together", name, first)
		return
	}
	r.ids[name] = r.place(at)
}

func (r *reader) instructions(path string, given instructions) string {
	text := given.text
	if given.file != "" {
		text = r.instructionsFile(path+".file", given.file)
	}
	if len(text) > MaxInstructions {
		r.Failf(path, "have %d bytes, at most %d are allowed; let the worker read long material from its workspace", len(text), MaxInstructions)
	}
	return text
}

func (r *reader) instructionsFile(path, given string) string {
	full, data, err := r.read(given, MaxInstructions)
	switch {
	case err != nil:
		r.Failf(path, "cannot read %q (%s): %v", given, full, err)
	case !utf8.Valid(data):
		r.Failf(path, "%q (%s) is not text in UTF-8", given, full)
	case strings.TrimSpace(string(data)) == "":
		r.Failf(path, "%q (%s) is empty, want a file with what the worker should do", given, full)
	}
	return string(data)
}

func (r *reader) timeOrDuration(path string, given timeOrDuration) *time.Time {
	at, err := given.resolve(r.now)
	if err != nil {
		r.Failf(path, "%v", err)
	}
	return at
}

// capabilities grants what the job asks for, or what its type gets by default.
// In the user's own folder nothing is granted that was not asked for.
func (r *reader) capabilities(path string, e *entry, s *job.Spec) {
	switch {
	case e.Capabilities != nil:
		s.Capabilities = *e.Capabilities
	case s.Type == job.LLM || r.Blamed(path+".capabilities"):
	case s.Type == job.WorkerTask && s.Workspace.Isolation == job.Direct:
		r.Failf(path+".capabilities", "are missing: with isolation direct the job works on your own files, so say what it may do, such as [read, edit]")
	default:
		s.Capabilities = []job.Capability{job.CanRead, job.CanEdit, job.CanRunCommands}
	}
	if len(s.AllowCommands) > 0 && !s.Can(job.CanRunCommands) && !r.Blamed(path+".capabilities") {
		r.Failf(path+".allow_commands", "have no use without the capability run_commands")
	}
}

// checkWorkers looks at the names of the workers and whether they fit the type.
func (r *reader) checkWorkers(path string, e *entry, s *job.Spec) {
	if s.Worker == "" {
		r.Failf(path+".worker", "is missing, want %s%s", r.oneOf(), r.likeAgent(string(e.Agent)))
	}
	for i, c := range s.Choices() {
		at := choicePath(path, s, i)
		if c.Worker == "" || r.Blamed(at) {
			continue
		}
		if !e.vetted {
			r.checkKnown(at, c.Worker)
		}
		switch {
		case s.Type == job.LLM && c.Worker == job.ShellWorker && i == 0:
			r.Failf(at, "%q cannot run a job of type LLM, want a worker with a model", c.Worker)
		case s.Type.Command() && c.Worker != job.ShellWorker && i > 0, s.Type == job.LLM && c.Worker == job.ShellWorker:
			r.Failf(at, "%q cannot run a job of type %s", c.Worker, s.Type)
		}
	}
}

// choicePath returns where the file names the i-th choice of a job.
func choicePath(path string, s *job.Spec, i int) string {
	switch {
	case s.Flow.Best:
		return fmt.Sprintf("%s.candidates[%d]", path, i)
	case i == 0:
		return path + ".worker"
	}
	return fmt.Sprintf("%s.fallback[%d]", path, i-1)
}

func (r *reader) checkKnown(path string, kind job.WorkerKind) {
	if len(r.opts.Workers) == 0 || slices.Contains(r.opts.Workers, string(kind)) {
		return
	}
	near := fields.Nearest(string(kind), r.opts.Workers)
	if near != "" {
		r.Failf(path, "%q is no known worker; did you mean %s? Known: %s", kind, near, strings.Join(r.opts.Workers, ", "))
		return
	}
	r.Failf(path, "%q is no known worker, want %s; others are set up in the configuration", kind, r.oneOf())
}

func (r *reader) oneOf() string {
	if len(r.opts.Workers) == 0 {
		return "the name of a worker such as codex, claude, opencode or shell"
	}
	return "one of " + strings.Join(r.opts.Workers, ", ")
}
