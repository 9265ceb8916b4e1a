package trigger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Defaults and bounds of Settings.
const (
	DefaultMisfireMax = 100
	MaxMisfireMax     = 1000
	DefaultDebounce   = job.Duration(time.Second)
	DefaultTimeout    = job.Duration(time.Minute)
	DefaultMaxBody    = 1 << 20  // bytes
	MaxBody           = 25 << 20 // bytes: the most that GitHub sends
	MaxAge            = job.Duration(time.Hour)
	// MinEvery is the shortest time between two firings of a trigger by design.
	MinEvery = job.Duration(time.Second)
)

// DefaultIgnore is what a Watch without Ignore ignores.
func DefaultIgnore() []string { return []string{".git"} }

var (
	validName     = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`)
	validVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	validPath     = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)
)

// Validate returns an error for a name that no trigger may have.
func (n Name) Validate() error {
	if !validName.MatchString(string(n)) {
		return fmt.Errorf("%q is not a name of a trigger, want 1 to 64 of a-z 0-9 and, not first, . - _", string(n))
	}
	return nil
}

// mistakes collects *job.FieldErrors.
type mistakes []error

func (m *mistakes) add(field, format string, args ...any) {
	*m = append(*m, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// Validate returns every rule that s breaks, joined, each a *job.FieldError
// whose Field is the name that JSON gives it, e.g. "watch.paths[0]". It reads
// neither files nor the environment.
func (s Settings) Validate() error {
	var m mistakes
	switch given := s.sources(); {
	case len(given) == 0:
		m.add("", "has no source: give one of cron, every, watch, webhook and command")
	case len(given) > 1:
		m.add(given[1], "stands beside %s: a trigger has one source", given[0])
	}
	s.checkTimes(&m)
	if s.Watch != nil {
		s.Watch.check(&m)
	}
	if s.Webhook != nil {
		s.Webhook.check(&m)
	}
	if s.Command != nil {
		s.Command.check(&m)
	}
	if strings.TrimSpace(s.Job) == "" {
		m.add("job", "is missing: want the path of a job file such as nightly.yaml")
	}
	if s.WithEvent && s.timed() {
		m.add("with_event", "has no use: a point in time has no event to append")
	}
	return errors.Join(m...)
}

func (s Settings) checkTimes(m *mistakes) {
	zone, err := loadZone(s.Zone)
	if err != nil {
		m.add("zone", "%q is no time zone that is known, want a name such as Europe/Berlin or UTC", s.Zone)
		zone = time.UTC
	}
	if s.Cron != "" {
		if _, err := parseCron(s.Cron, zone); err != nil {
			m.add("cron", "%q: %v", s.Cron, err)
		}
	} else if s.Zone != "" {
		m.add("zone", "has no use without cron")
	}
	if s.Every != 0 && s.Every < MinEvery {
		m.add("every", "is %s, want %s or more", s.Every, MinEvery)
	}
	if s.Misfire != "" && !slices.Contains(Misfires(), s.Misfire) {
		m.add("misfire", "%q is unknown, want one of skip, once, all", s.Misfire)
	} else if s.Misfire != "" && !s.timed() {
		m.add("misfire", "has no use without cron or every")
	}
	if s.MisfireMax < 0 || s.MisfireMax > MaxMisfireMax {
		m.add("misfire_max", "is %d, want 1 to %d", s.MisfireMax, MaxMisfireMax)
	} else if s.MisfireMax > 0 && s.Misfire != CatchUp {
		m.add("misfire_max", "has no use without misfire: all")
	}
}

func (w *Watch) check(m *mistakes) {
	if len(w.Paths) == 0 {
		m.add("watch.paths", "is missing: want files, folders or patterns such as [src, docs/*.md]")
	}
	for i, one := range w.Paths {
		if at := fmt.Sprintf("watch.paths[%d]", i); strings.TrimSpace(one) == "" {
			m.add(at, "is empty, want a path")
		} else if err := checkPattern(one); err != nil {
			m.add(at, "%q: %v", one, err)
		}
	}
	for i, one := range w.Ignore {
		if at := fmt.Sprintf("watch.ignore[%d]", i); strings.Trim(one, "/ ") == "" {
			m.add(at, "is empty, want a pattern such as *.log")
		} else if err := checkPattern(one); err != nil {
			m.add(at, "%q: %v", one, err)
		}
	}
	for i, one := range w.Changes {
		if !slices.Contains(Changes(), one) {
			m.add(fmt.Sprintf("watch.changes[%d]", i), "%q is unknown, want one of create, write, remove, rename, chmod", one)
		}
	}
}

func (w *Webhook) check(m *mistakes) {
	if !validPath.MatchString(w.Path) || path.Clean(w.Path) != w.Path || w.Path == "/" {
		m.add("webhook.path", "%q is not a path for it, want one such as /hooks/deploy", w.Path)
	}
	switch {
	case w.SecretEnv == "" && w.SecretFile == "":
		m.add("webhook", "has no secret: name the variable that holds it in secret_env, or a file with mode 0600 in secret_file")
	case w.SecretEnv != "" && w.SecretFile != "":
		m.add("webhook.secret_file", "stands beside secret_env: give one of them")
	case w.SecretEnv != "" && !validVariable.MatchString(w.SecretEnv):
		// Never repeated: people put the secret itself here by mistake.
		m.add("webhook.secret_env", "want the name of the variable that holds the secret, such as DEPLOY_SECRET, not the secret itself")
	}
	if w.MaxAge > MaxAge {
		m.add("webhook.max_age", "is %s, want at most %s", w.MaxAge, MaxAge)
	}
	if w.MaxBodyBytes < 0 || w.MaxBodyBytes > MaxBody {
		m.add("webhook.max_body_bytes", "is %d, want 1 to %d", w.MaxBodyBytes, MaxBody)
	}
	for i, one := range w.Methods {
		if one != http.MethodPost && one != http.MethodPut {
			m.add(fmt.Sprintf("webhook.methods[%d]", i), "%q is not allowed, want POST or PUT", one)
		}
	}
}

func (c *Command) check(m *mistakes) {
	if strings.TrimSpace(c.Run) == "" {
		m.add("command.run", "is missing: want a shell command such as git ls-remote origin main")
	}
	if c.Every < MinEvery {
		m.add("command.every", "is %s, want how long to wait between two runs, %s or more", c.Every, MinEvery)
	}
	if c.When != "" && !slices.Contains(Whens(), c.When) {
		m.add("command.when", "%q is unknown, want one of change, output, success", c.When)
	}
}

// ValidateAll returns what Validate has to say about each trigger, names and
// what they must not share included, by name; it is empty if all is well.
func ValidateAll(triggers map[Name]Settings) map[Name]error {
	found := map[Name]error{}
	paths := map[string]Name{}
	for _, name := range sortedNames(triggers) {
		s := triggers[name]
		err := errors.Join(name.Validate(), s.Validate())
		if s.Webhook != nil {
			if other, taken := paths[s.Webhook.Path]; taken {
				err = errors.Join(err, &job.FieldError{Field: "webhook.path", Message: fmt.Sprintf("%s is the path of trigger %s already", s.Webhook.Path, other)})
			}
			paths[s.Webhook.Path] = cmp.Or(paths[s.Webhook.Path], name)
		}
		if err != nil {
			found[name] = err
		}
	}
	return found
}

func sortedNames(triggers map[Name]Settings) []Name { return slices.Sorted(maps.Keys(triggers)) }
