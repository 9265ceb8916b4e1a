package acp

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

type stopReason string

// The reasons of the protocol.
const (
	endTurn         stopReason = "end_turn"
	maxTokens       stopReason = "max_tokens"
	maxTurnRequests stopReason = "max_turn_requests"
	refusal         stopReason = "refusal"
	turnCancelled   stopReason = "cancelled"
)

// prompt begins a turn, unless the run was stopped before.
func (s *session) prompt(texts ...string) {
	if s.stop != notStopped {
		s.end()
		return
	}
	blocks := make([]acp.ContentBlock, len(texts))
	for i, text := range texts {
		blocks[i] = acp.TextBlock(text)
	}
	s.phase, s.stopped, s.used = turning, "", turnUsage{}
	s.call(acp.AgentMethodSessionPrompt, acp.PromptRequest{SessionId: s.id, Prompt: blocks}, s.turned)
}

// turned takes the answer to a prompt. What the agent has told of the turn may still be
// on its way.
func (s *session) turned(r reply) {
	s.fold()
	if r.err != nil {
		if r.err.Code == codeAuthRequired {
			s.fail(s.unauthorized(r.err))
		} else {
			s.fail(failure("answer", r.err))
		}
		return
	}
	var p struct {
		StopReason stopReason
		Usage      *tokens
	}
	agentcli.Decode(r.result, &p)
	s.stopped = p.StopReason
	s.charge(p.Usage)
	s.phase = settling
	s.do(worker.SetTimer{Name: "settle", After: settleTime})
}

// settled begins the next turn if messages wait, or the agent is to hear why it was denied
// something; else it ends the run.
func (s *session) settled() {
	s.flush()
	s.forget()
	texts := s.why
	s.why = nil
	if s.stop == cancelled || len(s.queue) == 0 && (len(texts) == 0 || s.stop != notStopped) {
		s.end()
		return
	}
	s.stop = notStopped
	queue := s.queue
	s.queue = nil
	for _, m := range queue {
		texts = append(texts, m.Text)
		s.told = append(s.told, m.ID)
	}
	s.prompt(texts...)
	for _, m := range queue {
		if s.phase != turning { // they are too long
			s.do(worker.Settle{Message: m.ID, State: worker.MessageRefused, Reason: tooLate})
			continue
		}
		s.do(worker.Settle{Message: m.ID, State: worker.MessageDelivered})
	}
}

// fold says of the messages that began the running turn that it is under way.
func (s *session) fold() {
	for _, id := range s.told {
		s.do(worker.Settle{Message: id, State: worker.MessageFolded})
	}
	s.told = nil
}

// end has the agent end, which it does when its standard input has.
func (s *session) end() {
	s.flush()
	s.phase = ending
	s.do(worker.CloseInput{}, worker.SetTimer{Name: "end", After: endTime})
	s.refuseMessages()
}

// refuseMessages says of those that no turn will have that they are for the next attempt.
func (s *session) refuseMessages() {
	for _, m := range s.queue {
		s.do(worker.Settle{Message: m.ID, State: worker.MessageRefused, Reason: tooLate})
	}
	s.queue = nil
}

const tooLate = "the agent is ending"

func (s *session) message(m worker.Message) {
	switch {
	case s.phase == ending || s.stop == cancelled:
		s.do(worker.Settle{Message: m.ID, State: worker.MessageRefused, Reason: tooLate})
	case m.Again && s.history[sha256.Sum256([]byte(strings.TrimSpace(m.Text)))]:
		s.do(worker.Settle{Message: m.ID, State: worker.MessageFolded})
	case len(s.queue) >= maxOpen:
		s.do(worker.Settle{Message: m.ID, State: worker.MessageRefused, Reason: "too many messages wait for the agent's next turn"})
	default:
		s.queue = append(s.queue, m)
	}
}

// interrupt has the running turn stop. One that is over is not interrupted any more.
func (s *session) interrupt() {
	if s.phase == opening || s.phase == turning {
		s.stopTurn(interrupted)
	}
}

// cancel has the agent stop and end.
func (s *session) cancel() {
	switch s.phase {
	case turning:
		s.stopTurn(cancelled)
	case opening, settling:
		s.stop = cancelled
		s.end()
	}
}

// stopTurn asks the agent to stop its turn. The protocol wants all of its questions
// answered then.
func (s *session) stopTurn(why stopCause) {
	s.stop = max(s.stop, why)
	if s.phase == turning {
		s.notify(acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: s.id})
	}
	s.withdraw()
}

// ended says what the run amounts to.
func (s *session) ended(e worker.Exit) {
	s.flush()
	s.refuseMessages()
	r := s.result(e)
	r.Answer, r.Denied, r.CostUSD = s.answer, s.denied, s.cost
	r.Message, _ = job.Cut(r.Message, agentcli.MaxMessage)
	s.do(worker.Finish{Result: r})
}

func (s *session) result(e worker.Exit) worker.Result {
	switch {
	case e.Stopped && s.verdict == nil:
		return worker.Result{}
	case s.verdict != nil:
		return *s.verdict
	case e.Signal != "":
		return worker.Result{Class: job.Crash, Message: "the agent was ended by signal: " + e.Signal}
	case e.Code != 0 || s.phase == opening || s.phase == turning:
		return silent(e)
	case s.stop == interrupted:
		return worker.Result{Checkpointed: true, Message: "interrupted"}
	case s.stop == deniedAndStopped:
		return worker.Result{Checkpointed: true, Message: "stopped: it was denied " + cmp.Or(last(s.denied), "something")}
	}
	return s.stopped.result()
}

func last(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// result returns what a run amounts to whose last turn ended for this reason.
func (r stopReason) result() worker.Result {
	switch r {
	case endTurn:
		return worker.Result{}
	case maxTokens:
		return worker.Result{Class: job.ResourceExhausted, Message: "the answer was cut off at the model's output limit", Hint: agentcli.ContextHint}
	case maxTurnRequests:
		return worker.Result{Class: job.ResourceExhausted, Message: "the agent has made as many requests in one turn as it allows itself",
			Hint: "raise that limit in the agent's configuration, or split the job"}
	case refusal:
		return worker.Result{Class: job.Unknown, Message: "the agent refused to go on", Hint: "change the instructions"}
	case turnCancelled:
		return worker.Result{Class: job.Crash, Message: "the agent cancelled its turn, which it was not asked for"}
	}
	word, _ := job.Cut(string(r), 100)
	return worker.Result{Class: job.Unknown, Message: fmt.Sprintf("the agent's turn stopped for an unknown reason: %q", word)}
}

// silent explains the end of an agent that has not finished its turn.
func silent(e worker.Exit) worker.Result {
	r := worker.Result{Class: job.Crash, Message: fmt.Sprintf("the agent ended with exit code %d before its turn was over", e.Code)}
	if said := agentcli.LastLines(strings.ToValidUTF8(e.Stderr, "\uFFFD"), 5, nil); said != "" {
		r.Message += ": " + said
		if class, hint := byWords(said); class != job.Unknown {
			r.Class, r.Hint = class, hint
		}
	}
	return r
}

// failure classifies an error that the agent answers with.
func failure(what string, err *rpcError) worker.Result {
	message := fmt.Sprintf("the agent could not %s: %s", what, cmp.Or(err.Message, fmt.Sprintf("error %d", err.Code)))
	if details := details(err.Data); details != "" && !strings.Contains(message, details) {
		message += ": " + details
	}
	class, hint := byWords(message)
	if class == job.Unknown && slices.Contains([]int64{codeMethodNotFound, codeInvalidParams}, err.Code) {
		class, hint = job.Config, byHand
	}
	return worker.Result{Class: class, Message: message, Hint: hint}
}

// byHand is the hint where an agent does not keep to the protocol.
const byHand = "check that this version of the agent speaks version 1 of ACP"

// unauthorized names the ways in which the agent can be logged in.
func (s *session) unauthorized(err *rpcError) worker.Result {
	var ways []string
	for _, m := range s.agent.AuthMethods[:min(len(s.agent.AuthMethods), 10)] {
		way := cmp.Or(m.Name, m.ID)
		if m.Description != "" && m.Description != m.Name {
			way += " (" + m.Description + ")"
		}
		way, _ = job.Cut(way, 300)
		ways = append(ways, way)
	}
	hint := "log the agent in as yourself, or pass its key on with env in the worker's settings"
	if len(ways) > 0 {
		hint += "; it knows: " + strings.Join(ways, ", ")
	}
	return worker.Result{Class: job.Auth, Message: "the agent is not logged in: " + cmp.Or(err.Message, "authentication required"), Hint: hint}
}

// details returns the words in an error's data, which agents call as they like.
func details(data []byte) string {
	var text string
	if agentcli.Decode(data, &text) && text != "" {
		return text
	}
	var d struct{ Details, Message, Error string }
	agentcli.Decode(data, &d)
	return cmp.Or(d.Details, d.Message, d.Error)
}

// byWords sorts what is said without a status.
func byWords(message string) (job.ErrorClass, string) { return agentcli.Classify(rules, message) }

const loginHint = "log the agent in as yourself, or pass its key on with env in the worker's settings"

var rules = []agentcli.Rule{
	agentcli.NewRule(job.ResourceExhausted, agentcli.ContextHint, "context window", "context_length_exceeded", "prompt is too long", "maximum context length"),
	agentcli.NewRule(job.ResourceExhausted, agentcli.BillingHint, "insufficient_quota", "exceeded your current quota", "credit balance is too low", "insufficient balance"),
	agentcli.NewRule(job.RateLimit, "", "rate limit", "rate_limit", "ratelimit", "too many requests", "resource_exhausted", "usage limit", "status 429", "429 "),
	agentcli.NewRule(job.Auth, loginHint, "invalid api key", "api key is missing", "api_key", "unauthorized", "authentication", "not logged in", "please log in", "status 401", "401 "),
	agentcli.NewRule(job.Config, agentcli.ModelHint, "model not found", "model_not_found", "does not exist or you do not have access", "unknown model"),
	agentcli.NewRule(job.Server, "", "econnreset", "socket connection was closed", "overloaded", "internal server error", "server_error", "bad gateway", "service unavailable", "without a finish reason", "json parsing failed"),
	agentcli.NewRule(job.Network, agentcli.NetworkHint, "unable to connect", "econnrefused", "connectionrefused", "connection error", "enotfound", "fetch failed", "timed out"),
	agentcli.NewRule(job.ResourceExhausted, "", "no space left on device", "enospc", "out of memory"),
}
