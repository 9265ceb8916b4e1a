package jobfile

import (
	"slices"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// forEach is a mapping with the fields, or only the items.
type forEach struct{ forEachFields }

type forEachFields struct {
	Items       items `yaml:"items"`
	Max         *int  `yaml:"max"`
	MaxParallel *int  `yaml:"max_parallel"`
}

// DecodeNode reads either form.
func (f *forEach) DecodeNode(n *strictyaml.Node) {
	if !n.IsMapping() {
		n.Decode(&f.Items)
		return
	}
	n.Decode(&f.forEachFields)
	if !n.HasEntry("items") {
		n.Failf("has no items, want a list or an expression such as ${{ jobs.find.output }}")
	}
}

type loop struct {
	Command       string `yaml:"command"`
	File          string `yaml:"file"`
	Until         string `yaml:"until"`
	MaxIterations *int   `yaml:"max_iterations"`
	MaxSame       *int   `yaml:"max_same"`
	MaxFiles      *int   `yaml:"max_files"`
}

// oversight is a mapping with the fields, or only the mode.
type oversight struct{ oversightFields }

type oversightFields struct {
	Mode          string        `yaml:"mode"`
	Probability   *float64      `yaml:"probability"`
	MinConfidence *float64      `yaml:"min_confidence"`
	Timeout       *job.Duration `yaml:"timeout"`
	Default       string        `yaml:"default"`
	MaxRetries    *int          `yaml:"max_retries"`
}

// DecodeNode reads either form.
func (o *oversight) DecodeNode(n *strictyaml.Node) {
	if n.IsMapping() {
		n.Decode(&o.oversightFields)
		return
	}
	if n.IsList() {
		n.Failf("found a list, want a mode such as supervised, or a mapping with one")
		return
	}
	mode, ok := n.Text()
	if !ok {
		return
	}
	o.Mode = mode
	if modes := job.OversightModes(); !slices.Contains(modes, job.OversightMode(mode)) {
		n.Failf("%q is unknown, want one of %s", mode, words(modes))
	}
}

type evaluation struct {
	Domain  string        `yaml:"domain"`
	SLA     *job.Duration `yaml:"sla"`
	Command string        `yaml:"command"`
	Report  string        `yaml:"report"`
	Judge   string        `yaml:"judge"`
}

type agent struct {
	Name             string     `yaml:"name"`
	Capabilities     *[]string  `yaml:"capabilities"`
	Domains          []string   `yaml:"domains"`
	Input            schema     `yaml:"input"`
	Output           output     `yaml:"output"`
	Worker           string     `yaml:"worker"`
	Model            string     `yaml:"model"`
	Fallback         []choice   `yaml:"fallback"`
	SystemPrompt     string     `yaml:"system_prompt"`
	Oversight        *oversight `yaml:"oversight"`
	EvaluationDomain string     `yaml:"evaluation_domain"`
}

// agentsFile is a file of agents that several job files share.
type agentsFile struct {
	Agents []agent `yaml:"agents"`
}

type team struct {
	ID          string   `yaml:"id"`
	Strategy    string   `yaml:"strategy"`
	MaxRestarts *int     `yaml:"max_restarts"`
	MaxSeconds  *int     `yaml:"max_seconds"`
	Members     []member `yaml:"members"`
}

// member is a mapping with the fields, or only the id of a job.
type member struct{ memberFields }

type memberFields struct {
	Job      string        `yaml:"job"`
	Team     string        `yaml:"team"`
	Restart  string        `yaml:"restart"`
	Shutdown *job.Duration `yaml:"shutdown"`
}

// DecodeNode reads either form.
func (m *member) DecodeNode(n *strictyaml.Node) {
	switch {
	case n.IsMapping():
		n.Decode(&m.memberFields)
	case n.IsList():
		n.Failf("found a list, want the id of a job, or {job: ID} or {team: ID}")
	default:
		m.Job, _ = n.Text()
	}
}

type pipelineEntry struct {
	ID     string  `yaml:"id"`
	Stages []stage `yaml:"stages"`
}

type stage struct {
	ID          string   `yaml:"id"`
	Job         string   `yaml:"job"`
	Subscribes  []string `yaml:"subscribes"`
	Publishes   []string `yaml:"publishes"`
	Streams     bool     `yaml:"streams"`
	Batch       *int     `yaml:"batch"`
	MaxParallel *int     `yaml:"max_parallel"`
	Buffer      *int     `yaml:"buffer"`
}
