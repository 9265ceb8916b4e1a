package eval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Evaluation is one judgement of one piece of work, as it was counted. It holds
// the weights and the α that it was counted with, so that a reputation can be
// worked out again whatever the settings are by then.
type Evaluation struct {
	// ID is unique: of two that judge the same at the same time, and find the same,
	// only one can be stored.
	ID      string   `json:"id"`
	Job     job.ID   `json:"job"`
	Name    job.Name `json:"name"`
	Attempt int      `json:"attempt"` // the latest one of who is judged
	// Source is who judges: BySelf, or "by NAME".
	Source   string    `json:"source"`
	Subjects []Subject `json:"subjects"`
	Domain   string    `json:"domain"`

	Vector Vector `json:"vector"`
	// Sources says of each value where it is from: "measured", "command",
	// "report", "job NAME", "by NAME".
	Sources   map[Dimension]string `json:"sources"`
	Composite float64              `json:"composite"`
	WeightsOf string               `json:"weights_of"` // whose weights these are: Domain, or DefaultDomain
	Weights   Weights              `json:"weights"`
	Alpha     float64              `json:"alpha"`
	Comment   string               `json:"comment,omitempty"`
	// Problems tell which reports could not be used, and why.
	Problems []string  `json:"problems,omitempty"`
	At       time.Time `json:"at"`
}

// Sources of evaluations and of their values.
const (
	BySelf   = "scheduler"
	measured = "measured"
	command  = "command"
	inFile   = "report"
)

// put overrides values.
func (e *Evaluation) put(v Vector, source string) {
	e.Vector = v.Over(e.Vector)
	for _, d := range Dimensions() {
		if v.Get(d) != nil {
			e.Sources[d] = source
		}
	}
}

// begin returns the evaluation of a part, with what was measured.
// DomainOf returns the domain in which a job's work is judged: its evaluation's, or
// of a job that is not evaluated its own.
func DomainOf(s *job.Spec) string {
	if ev := s.Flow.Evaluation; ev != nil {
		return cmp.Or(ev.Domain, DefaultDomain)
	}
	return cmp.Or(s.Domain, DefaultDomain)
}

func begin(e *queue.Entry, p *Part, s *Settings, source string, now time.Time) Evaluation {
	out := Evaluation{ID: uuid.NewString(), Job: e.ID, Name: e.Spec.Name, Attempt: p.Number(), Source: source, Domain: DefaultDomain,
		Subjects: []Subject{WorkerSubject(p.Choice)}, Sources: map[Dimension]string{}, Alpha: s.Alpha, At: now}
	if ev := e.Spec.Flow.Evaluation; ev != nil {
		out.Domain = cmp.Or(ev.Domain, DefaultDomain)
	}
	if p.Last {
		if e.Spec.Agent != "" {
			out.Subjects = append(out.Subjects, AgentSubject(e.Spec.Tenant, e.Spec.Agent))
		}
		out.Subjects = append(out.Subjects, TenantSubject(e.Spec.Tenant))
	}
	out.Weights, out.WeightsOf = WeightsOf(Table(s.Weights), out.Domain)
	out.put(Measure(e, p), measured)
	return out
}

// Where records are. What was counted of a subject is kept apart from the jobs,
// so that it outlives them.
const (
	reputations = "evaluations/reputations" // by account
	counted     = "evaluations/of/"         // and the account: its evaluations, by number
	bases       = "evaluations/base/"       // and the account: the reputation as it was at some numbers
)

// ofJob is the space of a job's evaluations, by attempt and source; a record in
// it is what makes an evaluation count once.
func ofJob(id job.ID) string { return queue.JobSpace(id, "evaluations") }

func jobKey(attempt int, source string) string { return fmt.Sprintf("%06d/%s", attempt, source) }

// numberKey orders evaluations by when they were counted.
func numberKey(n int) string { return fmt.Sprintf("%012d", n) }

func record(space, key string, value any, at time.Time) (queue.Record, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return queue.Record{}, fmt.Errorf("write %s of %s: %w", key, space, err)
	}
	return queue.Record{Space: space, Key: key, Value: text, At: at}, nil
}
