package eval

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// Kind is what sort of thing has a reputation.
type Kind string

// The kinds of subjects.
const (
	Worker Kind = "worker" // a kind of worker and, where the job named one, its model
	Agent  Kind = "agent"  // an agent of a tenant
	Tenant Kind = "tenant" // whose jobs they were; over all domains
)

// AllDomains is the domain of a tenant's reputation.
const AllDomains = "all"

// Subject is who or what has a reputation.
type Subject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // "claude", "claude:opus", "website/agent-7", "website"
}

// String returns the name and its kind.
func (s Subject) String() string { return fmt.Sprintf("%s %s", s.Kind, s.Name) }

// WorkerSubject, AgentSubject and TenantSubject name their subjects.
func WorkerSubject(c job.Choice) Subject {
	if c.Model != "" {
		return Subject{Worker, string(c.Worker) + ":" + c.Model}
	}
	return Subject{Worker, string(c.Worker)}
}

func AgentSubject(t job.Tenant, a job.AgentID) Subject {
	return Subject{Agent, string(t) + "/" + string(a)}
}

func TenantSubject(t job.Tenant) Subject { return Subject{Tenant, string(t)} }

// account is one reputation: of a subject in a domain.
type account struct {
	subject Subject
	domain  string
}

// accounts returns what an evaluation counts for.
func accounts(e *Evaluation) []account {
	var list []account
	for _, s := range e.Subjects {
		domain := e.Domain
		if s.Kind == Tenant {
			domain = AllDomains
		}
		list = append(list, account{s, domain})
	}
	return list
}

// key is unique and holds no character of its parts that could end one.
func (a account) key() string {
	return string(a.subject.Kind) + "/" + url.PathEscape(a.subject.Name) + "/" + url.PathEscape(a.domain)
}

// Filter selects reputations; zero fields select all.
type Filter struct {
	// Name is that of a subject, or of what it belongs to: "claude" selects
	// "claude:opus" too, and "website" the agents of that tenant.
	Name   string
	Kind   Kind
	Domain string
}

func (f Filter) matches(r *Reputation) bool {
	name := r.Subject.Name
	return (f.Name == "" || f.Name == name || strings.HasPrefix(name, f.Name+":") || strings.HasPrefix(name, f.Name+"/")) &&
		(f.Kind == "" || f.Kind == r.Subject.Kind) && (f.Domain == "" || f.Domain == r.Domain)
}

// compare orders what a person reads: by kind, domain, the best first.
func compare(a, b Reputation) int {
	order := func(k Kind) int { return strings.Index("worker agent tenant", string(k)) }
	return cmp.Or(cmp.Compare(order(a.Subject.Kind), order(b.Subject.Kind)), cmp.Compare(a.Domain, b.Domain),
		cmp.Compare(b.R, a.R), cmp.Compare(a.Subject.Name, b.Subject.Name))
}
