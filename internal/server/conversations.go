package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// talkRoutes answer what people say to agents, and what these ask people.
func (j jobs) talkRoutes(r *router) {
	get(r, route{id: "list-messages", method: "GET", path: "/v1/jobs/{job}/messages", role: read, answered: fromStore, tag: "conversation",
		about: "List what was said to a job, and what became of each message."}, ofJob(j.entries, j.messages))
	post(r, route{id: "tell-job", method: "POST", path: "/v1/jobs/{job}/messages", role: operate, tag: "conversation",
		about: "Say something to the agent of a job.\nOne that runs is told now, if its program can be; else the job's next attempt is. One that has ended goes on as another job, which the message of the answer names. A message with the id of an earlier one is not said again."}, toJob(j.entries, j.tell))
	post(r, route{id: "fork-job", method: "POST", path: "/v1/jobs/{job}/fork", role: operate, tag: "conversation",
		about: "Begin another job with copies of a job's work and of its agent's session, and tell that something.\nThe job must not run at that moment, its worker must be able to fork a session, and its folder must be one of its own. The message of the answer names the new job."}, toJob(j.entries, j.fork))
	post(r, route{id: "interrupt-job", method: "POST", path: "/v1/jobs/{job}/interrupt", role: operate, tag: "conversation",
		about: "Have the agent of a job stop its turn, and keep its session.\nThe job goes on when it is told something."}, toJob(j.entries, j.interrupt))
	post(r, route{id: "take-job-over", method: "POST", path: "/v1/jobs/{job}/takeover", role: operate, tag: "conversation",
		about: "Put a job into a person's hands.\nIts run stops as when it is interrupted, and the job waits until it is handed back. It may be repeated."}, toJob(j.entries, j.takeOver))
	post(r, route{id: "hand-job-back", method: "POST", path: "/v1/jobs/{job}/handback", role: operate, tag: "conversation",
		about: "Let a job go on that a person has taken over.\nIts next attempt goes on in its session and folder, and is told so."}, toJob(j.entries, j.handBack))
	get(r, route{id: "get-inbox", method: "GET", path: "/v1/inbox", role: read, answered: fromStore, tag: "conversation",
		about: "Return what waits for people: work to look at, and questions of agents."}, j.inbox)
	get(r, route{id: "list-open-questions", method: "GET", path: "/v1/questions", role: read, answered: fromStore, tag: "conversation",
		about: "List the questions of agents that can be answered, in the order in which they were asked."}, j.openQuestions)
	get(r, route{id: "list-questions", method: "GET", path: "/v1/jobs/{job}/questions", role: read, answered: fromStore, tag: "conversation",
		about: "List what the agent of a job has asked people, with the answers."}, ofJob(j.entries, j.questions))
	post(r, route{id: "answer-question", method: "POST", path: "/v1/jobs/{job}/questions/{number}/answer", role: operate, tag: "conversation",
		about: "Answer a question of a job's agent.\nThe first answer counts. It also counts when the run has gone on without: an agent that asks the same again is given it."}, j.answerQuestion)
}

func (j jobs) messages(ctx context.Context, e *queue.Entry) (api.Messages, error) {
	list, err := scheduler.Messages(ctx, j.entries.store, e.ID)
	return api.Messages{Messages: some(list)}, err
}

// words checks what somebody says.
func words(bad *invalid, field, text string, required bool) {
	switch {
	case required && strings.TrimSpace(text) == "":
		bad.add(field, "is empty, want what to say")
	case len(text) > job.MaxMessage:
		bad.add(field, "has %d bytes, want at most %d", len(text), job.MaxMessage)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		bad.add(field, "is no text, want UTF-8 without NUL")
	}
}

func (j jobs) tell(ctx context.Context, e *queue.Entry, in *api.Say) (api.Said, error) {
	bad := &invalid{}
	words(bad, "body.text", in.Text, true)
	messageID(bad, in.ID)
	if err := bad.or(); err != nil {
		return api.Said{}, err
	}
	in.By = j.by(ctx, in.By)
	return j.sched.Conversations.Say(ctx, e.ID, *in)
}

func (j jobs) fork(ctx context.Context, e *queue.Entry, in *api.Fork) (api.Said, error) {
	bad := &invalid{}
	words(bad, "body.text", in.Text, true)
	messageID(bad, in.ID)
	if in.Name != "" {
		if err := job.ValidName(string(in.Name)); err != nil {
			bad.add("body.name", "%v", err)
		}
	}
	if err := bad.or(); err != nil {
		return api.Said{}, err
	}
	in.By = j.by(ctx, in.By)
	return j.sched.Conversations.Fork(ctx, e.ID, *in)
}

// messageID checks by which id something is said; "" is none.
func messageID(bad *invalid, id string) {
	if id != "" && !scheduler.ValidMessageID(id) {
		bad.add("body.id", "is %q, want 1 to 100 of a-z A-Z 0-9 . _ -", id)
	}
}

// by returns under which name something is recorded.
func (j jobs) by(ctx context.Context, said string) string {
	if j.who == nil {
		return said
	}
	return cmp.Or(j.who(ctx), said)
}

func (j jobs) interrupt(ctx context.Context, e *queue.Entry, in *api.Interrupt) (api.JobDetail, error) {
	in.By = j.by(ctx, in.By)
	if err := j.sched.Conversations.Interrupt(ctx, e.ID, *in); err != nil {
		return api.JobDetail{}, err
	}
	return j.entries.detail(ctx, e.ID)
}

func (j jobs) takeOver(ctx context.Context, e *queue.Entry, in *api.Takeover) (api.TakenOver, error) {
	in.By = j.by(ctx, in.By)
	return j.sched.Conversations.TakeOver(ctx, e.ID, *in)
}

func (j jobs) handBack(ctx context.Context, e *queue.Entry, in *api.Handback) (api.HandedBack, error) {
	bad := &invalid{}
	words(bad, "body.text", in.Text, false)
	messageID(bad, in.ID)
	if err := bad.or(); err != nil {
		return api.HandedBack{}, err
	}
	in.By = j.by(ctx, in.By)
	return j.sched.Conversations.HandBack(ctx, e.ID, *in)
}

type inboxQuery struct {
	Tenant job.Tenant `query:"tenant" doc:"only what is of this tenant"`
}

func (j jobs) inbox(ctx context.Context, q *inboxQuery) (api.Inbox, error) {
	work, err := scheduler.AwaitingApproval(ctx, j.entries.store)
	if err != nil {
		return api.Inbox{}, err
	}
	if q.Tenant != "" {
		work = slices.DeleteFunc(work, func(e queue.Entry) bool { return e.Spec.Tenant != q.Tenant })
	}
	questions, err := j.sched.Conversations.Open(ctx, q.Tenant)
	return api.Inbox{Jobs: some(j.entries.list(ctx, work)), Questions: some(questions)}, err
}

type questionsQuery struct {
	Tenant job.Tenant `query:"tenant" doc:"only those of this tenant"`
}

func (j jobs) openQuestions(ctx context.Context, q *questionsQuery) (api.Questions, error) {
	list, err := j.sched.Conversations.Open(ctx, q.Tenant)
	return api.Questions{Questions: some(list)}, err
}

func (j jobs) questions(ctx context.Context, e *queue.Entry) (api.Questions, error) {
	list, err := j.sched.Conversations.Questions(ctx, e.ID)
	return api.Questions{Questions: some(list)}, err
}

type questionPath struct {
	jobPath
	Number int `path:"number" minimum:"1" doc:"the number of the question among those of the job"`
}

func (j jobs) answerQuestion(ctx context.Context, p *questionPath, in *api.AnswerQuestion) (api.AnsweredQuestion, error) {
	e, err := j.entries.find(ctx, p.Job)
	if err != nil {
		return api.AnsweredQuestion{}, err
	}
	bad := &invalid{}
	words(bad, "body.text", in.Text, false)
	if scopes := api.RunGrantScopes(); in.Scope != "" && !slices.Contains(scopes, in.Scope) {
		bad.add("body.scope", "is %q, want one of %v", in.Scope, scopes)
	}
	if decisions := []string{api.Allow, api.Deny, api.DenyAndStop}; in.Decision != "" && !slices.Contains(decisions, in.Decision) {
		bad.add("body.decision", "is %q, want one of %v, or nothing for words", in.Decision, decisions)
	}
	if err := bad.or(); err != nil {
		return api.AnsweredQuestion{}, err
	}
	in.By = j.by(ctx, in.By)
	return j.sched.Conversations.Answer(ctx, e.ID, p.Number, *in)
}
