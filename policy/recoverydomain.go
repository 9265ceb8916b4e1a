package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/agentsched/agentsched/job"
)

// DefaultDomain is the name by which a Domain refers to the rules of jobs whose
// domain has none of its own.
const DefaultDomain = "default"

// Domain is how a field of work differs from another in what is done about
// failures.
type Domain struct {
	// StricterThan is the neighbour, DefaultDomain or another domain, than which
	// this one never does less (Rule.NotLess), and whose rules hold for the
	// classes that Rules does not name. "" makes no claim; then those of
	// DefaultDomain hold.
	StricterThan string
	Rules        Rules
}

// DefaultDomains are the domains that are there unless they are given
// otherwise. In law a half-done piece of work is not gone on with unseen.
func DefaultDomains() map[string]Domain {
	return map[string]Domain{
		"legal": {StricterThan: DefaultDomain, Rules: Rules{
			job.Crash:   {Action: DoEscalate},
			job.Timeout: {Action: DoFallback},
		}},
	}
}

// Tables returns the whole table of each domain: of those given, and of the
// default ones that are not among them, so far as these are as strict as their
// neighbour. The error joins *job.FieldError with fields such as
// "domains.legal.classes.CRASH"; it names the class, both domains and both
// actions where a domain is less strict than it claims to be.
func Tables(byDefault Rules, given map[string]Domain) (map[string]Rules, error) {
	b := tableBuilder{given: given, preset: DefaultDomains(), tables: map[string]Rules{DefaultDomain: byDefault}, open: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name == DefaultDomain {
			b.fail("domains."+name, "is not a domain: the rules of jobs without a domain are in classes")
		}
		b.table(name)
	}
	for _, name := range slices.Sorted(maps.Keys(b.preset)) {
		b.table(name)
	}
	delete(b.tables, DefaultDomain)
	return b.tables, errors.Join(b.errs...)
}

// tableBuilder makes tables, those of neighbours first.
type tableBuilder struct {
	given, preset map[string]Domain
	tables        map[string]Rules
	open          map[string]bool // being made: a neighbour of itself if it is met again
	errs          []error
}

// table returns the rules of the domain, or nil with the mistake recorded.
func (b *tableBuilder) table(name string) Rules {
	if t, made := b.tables[name]; made {
		return t
	}
	d, given := b.given[name]
	if !given {
		d = b.preset[name]
	}
	neighbour := d.StricterThan
	if neighbour == "" {
		neighbour = DefaultDomain
	}
	at := "domains." + name + ".stricter_than"
	_, known := b.given[neighbour]
	_, preset := b.preset[neighbour]
	switch {
	case neighbour != DefaultDomain && !known && !preset:
		b.fail(at, "%q is not a domain; want %s or one that is set up here", neighbour, DefaultDomain)
		neighbour = DefaultDomain
	case b.open[neighbour] || neighbour == name:
		b.fail(at, "domain %s cannot be stricter than %s, which claims to be stricter than %s", name, neighbour, name)
		neighbour = DefaultDomain
	}
	b.open[name] = true
	rules := maps.Clone(b.table(neighbour))
	delete(b.open, name)
	below := maps.Clone(rules)
	for _, class := range slices.Sorted(maps.Keys(d.Rules)) {
		rule := d.Rules[class]
		err := rule.NotLess(below.of(class))
		switch {
		case err == nil, d.StricterThan == "":
		case !given:
			continue // the neighbour was made stricter than what we would have
		default:
			b.fail("domains."+name+".classes."+string(class), "domain %s claims to be stricter than %s, but on %s %v", name, neighbour, class, err)
		}
		rules[class] = rule
	}
	b.tables[name] = rules
	return rules
}

func (b *tableBuilder) fail(field, format string, args ...any) {
	b.errs = append(b.errs, &job.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}
