package runmcp

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"
)

// Scheduler does what an agent asks for. An error is told to the agent: it says what would be right.
// Each method may be called by several goroutines at once.
type Scheduler interface {
	Submit(ctx context.Context, in Submit) (Job, error)
	// Wait returns when the named jobs have ended, all or any of them, or after a time. No names mean all jobs. It calls
	// tick now and then while it waits.
	Wait(ctx context.Context, names []string, any bool, wait time.Duration, tick func(string)) (Jobs, error)
	Result(ctx context.Context, name string) (Result, error)
	Cancel(ctx context.Context, name string) (Job, error)
	Ask(ctx context.Context, question string, tick func(string)) (Answer, error)
	Progress(text string)
	Budget(ctx context.Context) (Budget, error)
	// Notes keeps a note, if key is not empty, and returns all of them.
	Notes(ctx context.Context, key, text string) ([]Note, error)
}

// MaxWait bounds how long a call of wait_jobs waits.
const MaxWait = time.Hour

// Submit is what is said of a job.
type Submit struct {
	Name          string         `json:"name" jsonschema:"its name, unique among your jobs: 1 to 32 of a-z A-Z 0-9 and, not first, _ -"`
	Instructions  string         `json:"instructions" jsonschema:"what it is to do; it knows nothing else of your task"`
	Worker        string         `json:"worker,omitempty" jsonschema:"the kind of worker that does it; left out: yours"`
	MaxTokens     int64          `json:"max_tokens,omitempty" jsonschema:"tokens that it may use, of those that you have left; left out: an equal part"`
	MaxCostUSD    float64        `json:"max_cost_usd,omitempty" jsonschema:"US dollars that it may cost, of those that you have left; left out: an equal part"`
	Timeout       float64        `json:"timeout_seconds,omitempty" jsonschema:"how long it may run; left out: as long as your own job"`
	Capabilities  []string       `json:"capabilities,omitempty" jsonschema:"some of those of your own job; left out: all but scheduler, with which it could submit jobs itself"`
	AllowCommands []string       `json:"allow_commands,omitempty" jsonschema:"some of the patterns of your own job; left out: all"`
	Network       []string       `json:"network,omitempty" jsonschema:"some of the hosts of your own job, or none; left out: all"`
	Secrets       []string       `json:"secrets,omitempty" jsonschema:"some of the secrets of your own job; left out: all"`
	Output        map[string]any `json:"output,omitempty" jsonschema:"a JSON schema that its answer must satisfy; left out: text"`
}

// Schema returns Output as JSON; nil if there is none.
func (s *Submit) Schema() (json.RawMessage, error) {
	if len(s.Output) == 0 {
		return nil, nil
	}
	return json.Marshal(s.Output)
}

// Wait says for what wait_jobs waits.
type Wait struct {
	Names   []string `json:"names,omitempty" jsonschema:"the jobs to wait for; left out: all of yours"`
	Any     bool     `json:"any,omitempty" jsonschema:"return when one of them has ended"`
	Seconds float64  `json:"seconds,omitempty" jsonschema:"how long to wait at most"`
}

// Named names a job.
type Named struct {
	Name string `json:"name" jsonschema:"the name with which you have submitted it"`
}

// Job is how a job stands.
type Job struct {
	Name       string  `json:"name"`
	ID         string  `json:"id"`
	State      string  `json:"state" jsonschema:"queued, running, waiting_approval, succeeded, failed, cancelled or expired"`
	Ended      bool    `json:"ended"`
	Why        string  `json:"why,omitempty" jsonschema:"what it waits for, or why it has failed"`
	Before     bool    `json:"submitted_before,omitempty"`
	Tokens     int64   `json:"tokens,omitempty" jsonschema:"used so far, in attempts that have ended"`
	CostUSD    float64 `json:"cost_usd,omitempty"`
	MaxTokens  int64   `json:"max_tokens,omitempty"`
	MaxCostUSD float64 `json:"max_cost_usd,omitempty"`
}

func (j Job) clean() Job {
	j.Why = Clean(j.Why)
	return j
}

// Jobs are all that the agent has submitted.
type Jobs struct {
	Jobs []Job `json:"jobs"`
	Done bool  `json:"done" jsonschema:"those that were waited for have ended"`
}

// Result is what a job has left.
type Result struct {
	Job        Job    `json:"job"`
	Note       string `json:"note"`
	Answer     string `json:"answer,omitempty"`
	PatchFile  string `json:"patch_file,omitempty" jsonschema:"where the patch lies, of what it has changed; none if it has changed nothing"`
	PatchBytes int64  `json:"patch_bytes,omitempty"`
}

// Question is one to a person.
type Question struct {
	Question string `json:"question" jsonschema:"what you want to know, with all that a person needs to answer it"`
}

// Answer is a person's.
type Answer struct {
	Answered bool   `json:"answered"`
	Answer   string `json:"answer" jsonschema:"what the person said, or why there is no answer"`
}

// Progress is how far the agent is.
type Progress struct {
	Text string `json:"text"`
}

// Done says that something was done.
type Done struct {
	Done bool `json:"done"`
}

// Budget is what is left. What has no limit is left out.
type Budget struct {
	Tokens      *int64   `json:"tokens_left,omitempty"`
	CostUSD     *float64 `json:"cost_usd_left,omitempty"`
	Seconds     int64    `json:"seconds_left"`
	Jobs        int      `json:"jobs_left" jsonschema:"how many more you may submit"`
	CededTokens int64    `json:"tokens_of_jobs,omitempty" jsonschema:"what your jobs take: those under way all that they may use, the others what they have used"`
	CededUSD    float64  `json:"cost_usd_of_jobs,omitempty"`
}

// NewNote is one to be kept.
type NewNote struct {
	Key  string `json:"key" jsonschema:"1 to 100 of a-z A-Z 0-9 and, not first, . _ / -"`
	Text string `json:"text" jsonschema:"at most 4096 bytes"`
}

// Note is one that was kept.
type Note struct {
	Key  string `json:"key"`
	Text string `json:"text"`
	By   string `json:"by" jsonschema:"the job whose agent has written it"`
}

// Notes are what jobs have kept.
type Notes struct {
	Notes []Note `json:"notes"`
}

// Clean returns text without what a person who reads it would not see, and a model would: control characters other than tabs and
// ends of lines, characters that have no shape or turn the direction of what follows, and what is no UTF-8. Those that join
// letters and emoji (U+200C, U+200D) stay.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !strings.ContainsRune("\n\t\u200c\u200d", r) && unicode.In(r, unicode.Cc, unicode.Cf) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// maxLine bounds a line of progress, in bytes.
const maxLine = 500

func oneLine(text string) string {
	text = strings.Join(strings.Fields(Clean(text)), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}
