package trigger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/job"
)

// Defaults of Settings.
const (
	DefaultMisfireMax = 100
	DefaultDebounce   = job.Duration(time.Second)
	DefaultTimeout    = job.Duration(time.Minute)
	DefaultMaxBody    = 1 << 20 // bytes
)

// DefaultIgnore is what a Watch without Ignore ignores.
func DefaultIgnore() []string { return []string{".git"} }

// mistakes collects *job.FieldErrors.
type mistakes []error

func (m *mistakes) add(field, format string, args ...any) {
	*m = append(*m, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// Validate returns every rule that s breaks, joined, each a *job.FieldError
// whose Field is the name that JSON gives it, e.g. "watch.paths[0]". It reads
// neither files nor the environment.
func (s Settings) Validate() error {
	m := mistakes(fields.Errors(s))
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
	if s.Breaker != nil {
		s.Breaker.check(&m)
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
	if s.Misfire != "" && !s.timed() {
		m.add("misfire", "has no use without cron or every")
	}
	if s.MisfireMax > 0 && s.Misfire != CatchUp {
		m.add("misfire_max", "has no use without misfire: all")
	}
}

func (w *Watch) check(m *mistakes) {
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
}

func (w *Webhook) check(m *mistakes) {
	if path.Clean(w.Path) != w.Path {
		m.add("webhook.path", "%q is not a path for it, want one such as /hooks/deploy", w.Path)
	}
	switch {
	case w.SecretEnv == "" && w.SecretFile == "":
		m.add("webhook", "has no secret: name the variable that holds it in secret_env, or a file with mode 0600 in secret_file")
	case w.SecretEnv != "" && w.SecretFile != "":
		m.add("webhook.secret_file", "stands beside secret_env: give one of them")
	}
}

// ValidateAll returns what Validate has to say about each trigger, names and
// what they must not share included, by name; it is empty if all is well.
func ValidateAll(triggers map[Name]Settings) map[Name]error {
	found := map[Name]error{}
	paths := map[string]Name{}
	for _, name := range sortedNames(triggers) {
		s := triggers[name]
		err := errors.Join(fields.Validate(name), s.Validate())
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
