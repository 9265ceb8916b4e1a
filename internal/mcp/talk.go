package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

func addTalk(s *server, role string) {
	add(s, role, tool{name: "tell_job", role: operate, effect: adds, about: "Say something to the agent of a job. One that runs is told now if its worker can be talked to, else with its next attempt; one that was interrupted goes on with it."}, tellJob)
	add(s, role, tool{name: "interrupt_job", role: operate, effect: adds, idempotent: true, about: "Have the agent of a job stop its turn. Its session and folder stay, and it waits until tell_job says how to go on."}, interruptJob)
	add(s, role, tool{name: "list_questions", role: read, about: "List what agents ask people and nobody has answered, or all that one job has asked."}, listQuestions)
	add(s, role, tool{name: "answer_question", role: operate, effect: destroys, about: "Answer a question of a job's agent, as the person that you work for has said. The first answer counts."}, answerQuestion)
}

// message is what somebody has said to a job.
type message struct {
	Number   int       `json:"number"`
	From     string    `json:"from,omitempty"`
	Text     string    `json:"text"`
	State    string    `json:"state" jsonschema:"queued, delivered, folded (the agent has read it) or superseded (no agent will)"`
	Reason   string    `json:"reason,omitempty"`
	FollowUp job.ID    `json:"follow_up,omitempty" jsonschema:"the job that goes on with it, of one that had ended"`
	At       time.Time `json:"at"`
}

func messageOf(m *api.Message) message {
	return message{m.Number, line(m.From), whole(m.Text, 1<<10), string(m.State), line(m.Reason), m.FollowUp, m.At}
}

func tellJob(ctx context.Context, c *call, in struct {
	Job  string `json:"job" jsonschema:"the job's name, id, or a part of that"`
	Text string `json:"text" jsonschema:"what to say, at most 64 KiB"`
	ID   string `json:"id,omitempty" jsonschema:"names it in the job, 1 to 100 of a-z A-Z 0-9 . _ -: with the same id it is said once"`
}) (out struct {
	Job     job.ID  `json:"job" jsonschema:"the job that was told: of one that had ended, the one that goes on with it"`
	Message message `json:"message"`
	Note    string  `json:"note" jsonschema:"when the agent reads it"`
}, err error) {
	switch err := needsJob(in.Job); {
	case err != nil:
		return out, err
	case strings.TrimSpace(in.Text) == "":
		return out, wrong("text", "is empty, want what to say")
	case len(in.Text) > job.MaxMessage:
		return out, wrong("text", "has %d bytes, want at most %d: write the rest into a file and name that", len(in.Text), job.MaxMessage)
	}
	said, err := c.Tell(ctx, in.Job, api.Say{Text: in.Text, ID: firstOf(in.ID, uuid.NewString()), By: c.server.opt.By})
	out.Job, out.Message, out.Note = said.Message.Job, messageOf(&said.Message), line(said.Note)
	return out, err
}

func interruptJob(ctx context.Context, c *call, in oneJob) (changed, error) {
	if err := needsJob(in.Job); err != nil {
		return changed{}, err
	}
	j, err := c.Interrupt(ctx, in.Job, api.Interrupt{By: c.server.opt.By})
	return changed{lineOf(&j.Job), "its agent stops its turn; tell_job has it go on", notice}, err
}

// question is what an agent asks people.
type question struct {
	Job       job.ID     `json:"job"`
	Name      job.Name   `json:"name"`
	Number    int        `json:"number"`
	Tenant    job.Tenant `json:"tenant"`
	Kind      string     `json:"kind" jsonschema:"what it is about: command, write, read, host, tool or words"`
	State     string     `json:"state" jsonschema:"open, answered or withdrawn"`
	Decisions []string   `json:"decisions" jsonschema:"the answers that it takes; none: it wants words"`
	Waits     bool       `json:"waits" jsonschema:"the run waits for the answer now, else it has gone on without"`
	AskedAt   time.Time  `json:"asked_at"`
	Until     *time.Time `json:"until,omitempty" jsonschema:"when a run that waits goes on without an answer"`
	Answer    string     `json:"answer,omitempty" jsonschema:"what was answered, and by whom"`
	FromRun   asks       `json:"from_run"`
}

// asks is a question in the words of the run.
type asks struct {
	Text    string `json:"text"`
	Tool    string `json:"tool,omitempty"`
	Command string `json:"command,omitempty"`
	Path    string `json:"path,omitempty"`
	Host    string `json:"host,omitempty"`
	Diff    string `json:"diff,omitempty" jsonschema:"what a write would change, at most 2 KiB"`
	Schema  string `json:"schema,omitempty" jsonschema:"the JSON schema of the value that it wants"`
}

func questionOf(q *api.Question) question {
	out := question{
		Job: q.Job, Name: q.Name, Number: q.Number, Tenant: q.Tenant, Kind: q.Kind, State: string(q.State), Decisions: slices.Clone(q.Decisions),
		Waits: q.Waits, AskedAt: q.AskedAt, Until: q.Until,
		FromRun: asks{Text: whole(q.Text, maxAsked), Tool: line(q.Tool), Command: whole(q.Command, maxAsked), Path: line(q.Path), Host: line(q.Host), Diff: whole(q.Diff, maxAsked), Schema: whole(string(q.Schema), maxAsked)},
	}
	if out.Decisions == nil {
		out.Decisions = []string{}
	}
	if a := q.Answer; a != nil {
		out.Answer = line(fmt.Sprintf("%s by %s: %s", firstOf(a.Decision, "words"), firstOf(a.By, "somebody"), firstOf(a.Text, string(a.Value))))
	}
	return out
}

// questions is a list of questions.
type questions struct {
	Questions []question `json:"questions" jsonschema:"at most 20, the oldest first"`
	Total     int        `json:"total"`
	Notice    string     `json:"notice"`
}

func listQuestions(ctx context.Context, c *call, in struct {
	Job    string `json:"job,omitempty" jsonschema:"all questions of this job, answered ones too; absent: the open ones of all jobs"`
	Tenant string `json:"tenant,omitempty" jsonschema:"only those of this tenant"`
}) (questions, error) {
	ask := func() (api.Questions, error) { return c.OpenQuestions(ctx, job.Tenant(in.Tenant)) }
	if in.Job != "" {
		ask = func() (api.Questions, error) { return c.Questions(ctx, in.Job) }
	}
	list, err := ask()
	out := questions{Questions: []question{}, Total: len(list.Questions), Notice: notice}
	for i := range list.Questions[:min(len(list.Questions), maxListed)] {
		out.Questions = append(out.Questions, questionOf(&list.Questions[i]))
	}
	return out, err
}

// answered is a question with what follows of its answer.
type answered struct {
	Question question `json:"question"`
	Note     string   `json:"note" jsonschema:"what follows"`
	Notice   string   `json:"notice"`
}

func answerQuestion(ctx context.Context, c *call, in struct {
	Job      string `json:"job" jsonschema:"the job's name, id, or a part of that"`
	Number   int    `json:"number,omitempty" jsonschema:"the number of the question; absent: the only open one"`
	Decision string `json:"decision,omitempty" jsonschema:"allow, deny, or deny_and_stop; absent for a question that wants words"`
	Text     string `json:"text,omitempty" jsonschema:"words for the agent: why not, or the answer itself"`
	Value    any    `json:"value,omitempty" jsonschema:"the answer to a question with a schema"`
	For      string `json:"for,omitempty" jsonschema:"for what an allow is: once, job (its further runs too) or tenant (all jobs of its tenant); absent: once"`
	Pattern  string `json:"pattern,omitempty" jsonschema:"what to allow for job or tenant, such as npm test *; absent: exactly what was asked"`
}) (answered, error) {
	if err := needsJob(in.Job); err != nil {
		return answered{}, err
	}
	give := api.AnswerQuestion{Decision: in.Decision, Text: in.Text, Scope: api.RunGrantScope(in.For), Pattern: in.Pattern, By: c.server.opt.By}
	if in.Value != nil {
		value, err := json.Marshal(in.Value)
		if err != nil {
			return answered{}, wrong("value", "%v", err)
		}
		give.Value = value
	}
	if give.Decision == "" && give.Text == "" && give.Value == nil {
		return answered{}, wrong("decision", "is missing, want allow, deny or deny_and_stop, or words as text")
	}
	if in.Number == 0 {
		var err error
		if in.Number, err = onlyOpen(ctx, c, in.Job); err != nil {
			return answered{}, err
		}
	}
	done, err := c.AnswerQuestion(ctx, in.Job, in.Number, give)
	return answered{questionOf(&done.Question), line(done.Note), notice}, err
}

// onlyOpen returns the number of the only open question of a job.
func onlyOpen(ctx context.Context, c *call, ref string) (int, error) {
	list, err := c.Questions(ctx, ref)
	if err != nil {
		return 0, err
	}
	var open []string
	number := 0
	for i := range list.Questions {
		if q := &list.Questions[i]; q.State == api.QuestionOpen {
			number = q.Number
			open = append(open, fmt.Sprint(q.Number))
		}
	}
	switch len(open) {
	case 0:
		return 0, fmt.Errorf("job %s asks nothing: list_questions has what is open", line(ref))
	case 1:
		return number, nil
	}
	return 0, wrong("number", "is missing and the job asks %d questions, want one of %s", len(open), strings.Join(open, ", "))
}
