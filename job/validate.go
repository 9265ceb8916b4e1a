package job

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agentsched/agentsched/internal/fields"
)

// Validate returns every rule that s breaks, those of single fields first. It looks at s alone: whether a worker is known, a path exists or a
// schema compiles is checked by those who know about workers, paths, schemas.
func (s *Spec) Validate() []*FieldError {
	errs := fields.Check(s, nil)
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if err := s.validName(); err != nil {
		bad("id", "%v", err)
	}
	if s.Tenant != "" {
		if err := ValidTenant(s.Tenant); err != nil {
			bad("tenant", "%v", err)
		}
	}
	s.validateType(bad)
	s.validateChoices(bad)
	s.validateWorkspace(bad)
	s.validateNode(bad)
	if strings.TrimSpace(s.Instructions) == "" && s.Type != External {
		bad("instructions", "must not be empty: say what the worker should do")
	}
	for i, name := range s.Env {
		if name == "" || strings.ContainsAny(name, "= ") || !OneLine(name) {
			bad(fmt.Sprintf("env[%d]", i), "%q is not the name of a variable, want a name such as GOFLAGS (values are taken from the scheduler's environment)", name)
		}
	}
	if s.Deadline != nil && s.RunnableAt != nil && !s.RunnableAt.Before(*s.Deadline) {
		bad("runnable_at", "%s is not before the deadline %s, so the job could never run", s.RunnableAt.Format(time.RFC3339), s.Deadline.Format(time.RFC3339))
	}
	s.validateSandbox(bad)
	s.validateAsk(bad)
	s.validateOwner(bad)
	s.validateDuplicates(bad)
	s.validateFlow(bad)
	// It travels to the core in one frame of at most 1 MiB.
	if text, err := json.Marshal(s); err == nil && len(text) > MaxSpec {
		bad("instructions", "and the rest of the job have %d bytes as JSON, at most %d are allowed; let the worker read long material from its workspace", len(text), MaxSpec)
	}
	return errs
}

// MaxSpec bounds a job's specification, in bytes of its JSON form.
const MaxSpec = 768 << 10

func (s *Spec) validateType(bad func(string, string, ...any)) {
	switch s.Type {
	case WorkerTask:
	case Tool, PluginEvent, Maintenance:
		if s.Worker != ShellWorker {
			bad("worker", "%q cannot run a job of type %s, want shell", s.Worker, s.Type)
		}
		switch {
		case s.Type != Maintenance || s.Workspace.Isolation == Direct:
		case s.Workspace.Isolation == NoWorkspace:
			bad("workspace", "is missing, want the folder that the job looks after, such as {path: .}")
		default:
			bad("workspace.isolation", "%q is not for a job of type MAINTENANCE, which looks after a folder itself, want direct", s.Workspace.Isolation)
		}
	case LLM:
		if s.Workspace.Isolation != NoWorkspace {
			bad("workspace.isolation", "%q is not for a job of type LLM, which has no workspace; leave it out", s.Workspace.Isolation)
		}
		if len(s.Capabilities) > 0 {
			bad("capabilities", "are not for a job of type LLM, which has no tools; leave them out")
		}
	case External:
		if s.Worker != "" || len(s.Fallback) > 0 {
			bad("worker", "%q is not for a job of type EXTERNAL, which is run by whoever claims it; leave it out", s.Worker)
		}
		if s.Workspace.Isolation != NoWorkspace {
			bad("workspace.isolation", "%q is not for a job of type EXTERNAL, want none", s.Workspace.Isolation)
		}
		return
	}
	if s.Worker == "" {
		bad("worker", "is missing, want the name of a worker such as codex, claude, opencode or shell")
	}
}

func (s *Spec) validateWorkspace(bad func(string, string, ...any)) {
	w := s.Workspace
	switch w.Isolation {
	case Worktree, Direct, Copy:
		switch {
		case !w.IsFolder():
			s.validateOrigin(bad)
		case !filepath.IsAbs(w.Path):
			bad("workspace.path", "%q is not an absolute path", w.Path)
		case InKernel(w.Path):
			bad("workspace.path", "%q is not a folder to work in: the kernel shows processes and devices there", w.Path)
		}
	case NoWorkspace:
		if w.Path != "" {
			bad("workspace.path", "%q has no use with isolation none; leave it out or choose worktree, direct or copy", w.Path)
		}
		if !w.IsFolder() {
			bad("workspace.isolation", "%q has no use with a repository, want %s", w.Isolation, Worktree)
		}
	}
	if w.Base != "" && w.Isolation != Worktree {
		bad("workspace.base", "%q has no use with isolation %s, only with worktree", w.Base, w.Isolation)
	}
	if strings.HasPrefix(w.Base, "-") || !OneLine(w.Base) {
		bad("workspace.base", "%q cannot be a commit, branch or tag", w.Base)
	}
}

// InKernel reports whether an absolute path lies where the kernel shows processes
// and devices: /proc, /sys and /dev. Symlinks are not followed.
func InKernel(path string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if rest, found := strings.CutPrefix(filepath.Clean(path), dir); found && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// validateChoices looks at the names of workers and models. Which exist is known to
// others; these appear unchecked in tables, metrics and log lines.
func (s *Spec) validateChoices(bad func(string, string, ...any)) {
	for i, c := range s.Choices() {
		worker, model := "worker", "model"
		if i > 0 {
			worker = fmt.Sprintf("fallback[%d]", i-1)
			model = worker
		}
		if c.Worker != "" {
			if err := ValidWorker(c.Worker); err != nil {
				bad(worker, "%v", err)
			}
		}
		if len(c.Model) > maxKey || !OneLine(c.Model) {
			bad(model, "%q is not the name of a model, want one line of at most %d bytes", c.Model, maxKey)
		}
	}
	for _, f := range []struct{ field, value string }{{"correlation_id", s.Context.CorrelationID}, {"user_id", s.Context.UserID}, {"session_id", s.Context.SessionID}} {
		if len(f.value) > maxKey || !OneLine(f.value) || strings.TrimSpace(f.value) != f.value {
			bad("context."+f.field, "%q is not an id, want one line of at most %d bytes without blanks around it", f.value, maxKey)
		}
	}
	if len(s.Trace) > maxKey || !OneLine(s.Trace) {
		bad("trace", "%q is not an id, want one line of at most %d bytes", s.Trace, maxKey)
	}
}

// ValidTenant says why t cannot be the name of a tenant, or returns nil. The name
// stands in tables, metrics, paths of the interface and before the / of an owner.
func ValidTenant(t Tenant) error { return fields.Validate(t) }

// ValidWorker says why k cannot be the name of a kind of worker, or returns nil.
func ValidWorker(k WorkerKind) error { return fields.Validate(k) }

// ValidAgent says why a cannot be the name of an agent, or returns nil.
func ValidAgent(a AgentID) error { return fields.Validate(a) }

// OneLine reports whether text is valid and free of control characters, line breaks
// among them, so that it can stand in a line of a table or of a log.
func OneLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
	})
}

// validateOwner looks at who asks, why, and what it is expected to take.
func (s *Spec) validateOwner(bad func(string, string, ...any)) {
	switch {
	case s.Trigger == "" || slices.Contains(Triggers(), s.Trigger):
	case s.Type == External:
		if !wordName.MatchString(string(s.Trigger)) {
			bad("trigger", "%q is not a name, want one of %s, or 1 to 128 of a-z A-Z 0-9 and, not first, - _ . : / @", s.Trigger, joined(Triggers()))
		}
	default:
		bad("trigger", "%q is unknown, want one of %s", s.Trigger, joined(Triggers()))
	}
	switch {
	case len(s.Payload) == 0:
	case s.Type != External && s.Type != PluginEvent:
		bad("payload", "has no use in a job of type %s, only in one of type PLUGIN_EVENT or EXTERNAL", s.Type)
	case !json.Valid(s.Payload):
		bad("payload", "is not JSON")
	}
}

// wordName is what an agent or a domain may be called.
var wordName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$`)

// maxKey bounds a key and a turn, in bytes: they stand in tables and messages.
const maxKey = 256

func (s *Spec) validateDuplicates(bad func(string, string, ...any)) {
	for _, f := range []struct{ field, value, example string }{{"key", s.Key, "deploy-website"}, {"turn", s.Turn, "turn-7"}} {
		switch {
		case f.value == "":
		case len(f.value) > maxKey:
			bad(f.field, "has %d bytes, at most %d are allowed", len(f.value), maxKey)
		case strings.TrimSpace(f.value) != f.value || !OneLine(f.value):
			bad(f.field, "%q is not one line without blanks around it, want a text such as %s", f.value, f.example)
		}
	}
	switch {
	case s.Turn == "":
	case s.Key != "":
		bad("turn", "%q has no use beside a key, which alone tells duplicates; leave one of them out", s.Turn)
	case s.OnDuplicate == RunEach:
		bad("turn", "%q has no use without on_duplicate, want one of %s there", s.Turn, joined(DuplicatePolicies()))
	}
}

func joined[S ~string](list []S) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}
