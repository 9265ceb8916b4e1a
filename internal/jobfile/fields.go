package jobfile

import "github.com/agentsched/agentsched/job"

// file, entry and what they hold are the fields of a job file, in the order
// in which docs/job-file.md explains them. Pointers tell what the file leaves
// out from what it sets to zero.
type file struct {
	Tenant     string          `yaml:"tenant"`
	Jobs       []entry         `yaml:"jobs"`
	Agents     []agent         `yaml:"agents"`
	AgentsFile string          `yaml:"agents_file"`
	Teams      []team          `yaml:"teams"`
	Pipelines  []pipelineEntry `yaml:"pipelines"`
}

type entry struct {
	ID           string       `yaml:"id"`
	Type         jobType      `yaml:"type"`
	Worker       string       `yaml:"worker"`
	Model        string       `yaml:"model"`
	Fallback     []choice     `yaml:"fallback"`
	Candidates   *[]choice    `yaml:"candidates"`
	Workspace    *workspace   `yaml:"workspace"`
	Instructions instructions `yaml:"instructions"`
	SystemPrompt string       `yaml:"system_prompt"`
	Capabilities *[]string    `yaml:"capabilities"`
	Allow        []string     `yaml:"allow_commands"`
	Env          []string     `yaml:"env"`
	Secrets      unsupported  `yaml:"secrets" strict:"reserved"`
	Priority     int          `yaml:"priority"`
	Class        string       `yaml:"class"`
	Agent        string       `yaml:"agent"`
	Domain       string       `yaml:"domain"`
	Expect       expectation  `yaml:"expect"`
	Key          string       `yaml:"key"`
	OnDuplicate  string       `yaml:"on_duplicate"`
	Turn         string       `yaml:"turn"`
	RunnableAt   moment       `yaml:"runnable_at"`
	Deadline     moment       `yaml:"deadline"`
	Limits       limits       `yaml:"limits"`
	Output       output       `yaml:"output"`
	Verify       string       `yaml:"verify"`
	Needs        ids          `yaml:"needs"`
	If           string       `yaml:"if"`
	ForEach      *forEach     `yaml:"for_each"`
	Loop         *loop        `yaml:"loop"`
	Input        input        `yaml:"input"`
	Payload      payload      `yaml:"payload"`
	Merge        ids          `yaml:"merge"`
	Oversight    *oversight   `yaml:"oversight"`
	Evaluation   *evaluation  `yaml:"evaluation"`
	Trace        string       `yaml:"trace"`
	Context      asker        `yaml:"context"`

	vetted bool // the worker was looked at where it was found
	ofBest bool // the worker and the fallback are candidates
}

type workspace struct {
	Path       string `yaml:"path"`
	Isolation  string `yaml:"isolation"`
	Base       string `yaml:"base"`
	From       ids    `yaml:"from"`
	OnConflict string `yaml:"on_conflict"`
}

type limits struct {
	Timeout        *job.Duration `yaml:"timeout"`
	MaxAttempts    *int          `yaml:"max_attempts"`
	MaxCostUSD     *float64      `yaml:"max_cost_usd"`
	MaxTokens      *int64        `yaml:"max_tokens"`
	MaxSteps       *int64        `yaml:"max_steps"`
	MaxCommandTime *job.Duration `yaml:"max_command_time"`
	RetryBudget    retryBudget   `yaml:"retry_budget"`
	Memory         *job.Size     `yaml:"memory"`
	Processes      *int64        `yaml:"processes"`
	CPU            *float64      `yaml:"cpu"`
}

// asker is a job.Context.
type asker struct {
	CorrelationID string `yaml:"correlation_id"`
	UserID        string `yaml:"user_id"`
	SessionID     string `yaml:"session_id"`
}

type expectation struct {
	Tokens  *int64   `yaml:"tokens"`
	CostUSD *float64 `yaml:"cost_usd"`
}

type retryBudget struct {
	Time    *job.Duration `yaml:"time"`
	CostUSD *float64      `yaml:"cost_usd"`
}
