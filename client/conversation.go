package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// Messages returns what was said to the job that ref names.
func (c *Client) Messages(ctx context.Context, ref string) (api.Messages, error) {
	var out api.Messages
	err := c.get(ctx, jobPath(ref, "/messages"), nil, &out)
	return out, err
}

// Tell says something to the agent of the job that ref names. With an ID it may be repeated.
func (c *Client) Tell(ctx context.Context, ref string, in api.Say) (api.Said, error) {
	var out api.Said
	err := c.post(ctx, jobPath(ref, "/messages"), in, &out)
	return out, err
}

// Fork begins another job with copies of the work and the session of the job that ref names. With an ID it may be repeated.
func (c *Client) Fork(ctx context.Context, ref string, in api.Fork) (api.Said, error) {
	var out api.Said
	err := c.post(ctx, jobPath(ref, "/fork"), in, &out)
	return out, err
}

// Interrupt has the agent of the job that ref names stop its turn, and keep its session.
func (c *Client) Interrupt(ctx context.Context, ref string, in api.Interrupt) (api.JobDetail, error) {
	var out api.JobDetail
	err := c.post(ctx, jobPath(ref, "/interrupt"), in, &out)
	return out, err
}

// TakeOver puts the job that ref names into a person's hands. The answer may come before its run has stopped; it may be repeated.
func (c *Client) TakeOver(ctx context.Context, ref string, in api.Takeover) (api.TakenOver, error) {
	var out api.TakenOver
	err := c.post(ctx, jobPath(ref, "/takeover"), in, &out)
	return out, err
}

// HandBack lets the job that ref names go on, which a person has taken over. With an ID it may be repeated.
func (c *Client) HandBack(ctx context.Context, ref string, in api.Handback) (api.HandedBack, error) {
	var out api.HandedBack
	err := c.post(ctx, jobPath(ref, "/handback"), in, &out)
	return out, err
}

// Inbox returns what waits for people: of a tenant, or of all if t is empty.
func (c *Client) Inbox(ctx context.Context, t job.Tenant) (api.Inbox, error) {
	var out api.Inbox
	err := c.get(ctx, "/v1/inbox", url.Values(query{}.add("tenant", string(t))), &out)
	return out, err
}

// OpenQuestions returns the questions of agents that can be answered: those of a tenant, or
// all if t is empty.
func (c *Client) OpenQuestions(ctx context.Context, t job.Tenant) (api.Questions, error) {
	var out api.Questions
	err := c.get(ctx, "/v1/questions", url.Values(query{}.add("tenant", string(t))), &out)
	return out, err
}

// Questions returns what the agent of the job that ref names has asked people.
func (c *Client) Questions(ctx context.Context, ref string) (api.Questions, error) {
	var out api.Questions
	err := c.get(ctx, jobPath(ref, "/questions"), nil, &out)
	return out, err
}

// AnswerQuestion answers a question of the job that ref names. The first answer counts.
func (c *Client) AnswerQuestion(ctx context.Context, ref string, number int, in api.AnswerQuestion) (api.AnsweredQuestion, error) {
	var out api.AnsweredQuestion
	err := c.post(ctx, jobPath(ref, "/questions/"+strconv.Itoa(number)+"/answer"), in, &out)
	return out, err
}
