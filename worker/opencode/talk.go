package opencode

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/agentcli"
)

const (
	// quietTime is how long a session must be idle with prompts that no turn has read until they are sent again. The program
	// says twice that it was interrupted, and may overlook a prompt that comes in the moment in which a turn ends.
	quietTime = time.Second
	// maxResent is how often that is done in a run without a turn in between.
	maxResent = 3
	// searched is how many messages of a session are searched for one that an earlier attempt may have said.
	searched = 100
)

// prompt is what the agent is told: the job's instructions, or a message.
type prompt struct {
	message string // Message.ID; "" for the job's own
	text    string
	name    string // the end of its id at the program, the same in all attempts
	id      string // at the program; "" until it is sent
	again   bool   // the session may have it
	asked   bool   // whether it has was asked
	sent    bool
}

// promptName is the end of a prompt's id: as long as the program's own random ones.
func promptName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:7])
}

// promptTime is the beginning of an id, by which the program orders its messages: as it makes them itself, milliseconds
// since 1970 with room for a count.
func promptTime(now time.Time) string {
	return fmt.Sprintf("%012x", uint64(now.UnixMilli())<<12&(1<<48-1))
}

// tell has the program told a message.
func (s *session) tell(m worker.Message) {
	p := &prompt{message: m.ID, text: m.Text, name: promptName("message " + m.ID), again: m.Again && s.Resume != ""}
	if s.closed || s.Decided() {
		s.settle(p, worker.MessageRefused, ending)
		return
	}
	s.prompts = append(s.prompts, p)
	s.send()
}

func (s *session) settle(p *prompt, state worker.MessageState, reason string) {
	if p.message != "" {
		s.do(worker.Settle{Message: p.message, State: state, Reason: reason})
	}
}

// send sends the prompts that were not sent. While the program is interrupted they wait.
func (s *session) send() {
	if s.session == "" || s.interrupted || s.closed {
		return
	}
	for _, p := range s.prompts {
		switch {
		case p.sent:
		case p.again:
			s.lookFor(p)
			return // those after it wait
		default:
			s.post(p)
		}
	}
}

// lookFor asks the session whether it has p.
func (s *session) lookFor(p *prompt) {
	if p.asked {
		return
	}
	p.asked = true
	s.ask("GET", sessionPath(s.session, fmt.Sprintf("message?limit=%d", searched)), nil, func(a answer) {
		var messages []struct{ Info struct{ ID string } }
		p.again = false
		if agentcli.Decode(a.Body, &messages) {
			for _, m := range messages {
				if strings.HasSuffix(m.Info.ID, p.name) {
					s.settle(p, worker.MessageFolded, "")
					s.drop(p)
					break
				}
			}
		}
		s.send()
	})
}

func (s *session) drop(p *prompt) {
	s.prompts = slices.DeleteFunc(s.prompts, func(one *prompt) bool { return one == p })
}

// post sends a prompt. Sent again it takes its own place, since its ids are the same.
func (s *session) post(p *prompt) {
	if p.id == "" {
		p.id = promptTime(s.Now) + p.name
	}
	p.sent = true
	body := map[string]any{
		"messageID": "msg_" + p.id, "agent": agentName,
		"parts": []any{map[string]any{"id": "prt_" + p.id, "type": "text", "text": p.text}},
	}
	if s.model != nil {
		body["model"] = s.model
	}
	s.ask("POST", sessionPath(s.session, "prompt_async"), body, func(a answer) {
		if !slices.Contains(s.prompts, p) {
			return // it was read meanwhile
		}
		if a.ok() {
			s.settle(p, worker.MessageDelivered, "")
			return
		}
		s.drop(p)
		f := a.failure()
		if p.message == "" {
			s.fail(f)
			return
		}
		s.settle(p, worker.MessageRefused, f.String())
	})
}

// read says that the agent has read what came up to a message of the user's.
func (s *session) read(upTo string) {
	for len(s.prompts) > 0 && s.prompts[0].sent && "msg_"+s.prompts[0].id <= upTo {
		s.settle(s.prompts[0], worker.MessageFolded, "")
		s.prompts = s.prompts[1:]
		s.began, s.resent = true, 0
	}
}

// interrupt has the program stop its turn.
func (s *session) interrupt() {
	if s.closed || s.interrupted {
		return
	}
	s.interrupted = true
	s.withdraw()
	s.abort()
}

func (s *session) abort() {
	if s.session != "" && !s.closed {
		s.ask("POST", sessionPath(s.session, "abort"), map[string]any{}, nil)
	}
}

// isIdle notes that the program's session is idle, which is the end of the turn unless something waits.
func (s *session) isIdle() {
	s.idle = true
	switch {
	case s.closed || s.Decided():
	case s.failure != nil && !s.interrupted:
		s.close()
	case len(s.prompts) > 0 || s.interrupted && s.main.open:
		s.do(worker.SetTimer{Name: quiet, After: quietTime})
	default:
		s.turnOver()
	}
}

// isBusy notes that it is not.
func (s *session) isBusy() {
	if s.idle {
		s.idle = false
		s.do(worker.SetTimer{Name: quiet})
	}
}

// stillIdle ends the turn, and begins another one for what waits.
func (s *session) stillIdle() {
	if s.idle && !s.closed && !s.Decided() {
		s.turnOver()
	}
}

// turnOver ends the program, unless prompts wait: those begin another turn. An interrupted program is told the job's own
// once more only if there are others.
func (s *session) turnOver() {
	waits := slices.ContainsFunc(s.prompts, func(p *prompt) bool { return p.message != "" || !s.interrupted })
	switch {
	case !waits:
		s.close()
		return
	case s.resent == maxResent:
		s.fail(&failure{Name: "NoTurn", Data: failureData{Message: "opencode takes a prompt and begins no turn with it"}})
		return
	}
	s.resent++
	s.interrupted, s.failure = false, nil
	s.main.step, s.main.tries = false, 0 // of the turn that was stopped
	for _, p := range s.prompts {
		p.sent = false
	}
	s.send()
}

// sessionPath is the path of what a session of the program's has.
func sessionPath(id, what string) string { return "/session/" + url.PathEscape(id) + "/" + what }

// encode returns v as a line of JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // of plain values: it cannot fail
	return b.Bytes()
}

// take answers a question of the program's.
func (s *session) take(a worker.Answer) {
	i := slices.IndexFunc(s.asked, func(r *request) bool { return r.ID == a.Question })
	if i < 0 {
		return
	}
	r := s.asked[i]
	switch {
	case len(r.Questions) > 0:
		s.asked = slices.Delete(s.asked, i, i+1)
		s.ask("POST", "/question/"+url.PathEscape(r.ID)+"/reply", map[string]any{"answers": r.choices(a)}, nil)
	case a.Decision.Allows():
		s.asked = slices.Delete(s.asked, i, i+1)
		reply := "once"
		if a.Decision == worker.AllowInRun {
			reply = "always"
		}
		s.reply(r, map[string]any{"reply": reply})
		s.rejectSoon()
	default:
		r.refused = notGranted
		if a.Text != "" {
			r.refused, _ = job.Cut(a.Text, agentcli.MaxMessage)
		}
		if a.Decision == worker.DenyAndStop {
			s.reply(r, map[string]any{"reply": "reject", "message": r.refused})
			s.asked = slices.DeleteFunc(s.asked, func(one *request) bool { return one == r })
			s.interrupt()
			return
		}
		s.rejectSoon()
	}
}

// notGranted is what the agent is told where nobody has said why not.
const notGranted = "the job does not grant this; go on without it"

func (s *session) reply(r *request, body map[string]any) {
	for _, c := range s.calls {
		if body["reply"] == "reject" && c.id == r.Tool.CallID && c.session == r.Session {
			c.replied = true
		}
	}
	s.ask("POST", "/permission/"+url.PathEscape(r.ID)+"/reply", body, nil)
}

// rejectTime is how long a refusal waits for calls of the same step that have not begun to show.
const rejectTime = 100 * time.Millisecond

func (s *session) rejectSoon() {
	if slices.ContainsFunc(s.asked, func(r *request) bool { return r.refused != "" }) {
		s.do(worker.SetTimer{Name: rejecting, After: rejectTime})
	}
}

// reject passes refusals on. The program takes one for all that it has asked in a session, so that each waits until the
// others have an answer, and until calls have begun that may yet be asked about. Nothing is lost by that: the step goes
// on when all of its calls have ended.
func (s *session) reject() {
	for _, r := range slices.Clone(s.asked) {
		if r.refused != "" && !s.mayAsk(r.Session) {
			s.asked = slices.DeleteFunc(s.asked, func(one *request) bool { return one == r })
			s.reply(r, map[string]any{"reply": "reject", "message": r.refused})
		}
	}
}

// mayAsk reports whether a session of the program's waits for an answer, or may come to ask in this step.
func (s *session) mayAsk(session string) bool {
	for _, r := range s.asked {
		if r.Session == session && r.refused == "" && len(r.Questions) == 0 {
			return true
		}
	}
	for _, c := range s.calls {
		asked := func(r *request) bool { return r.Session == session && r.Tool.CallID == c.id }
		if c.session == session && !c.began && !c.replied && !slices.ContainsFunc(s.asked, asked) {
			return true
		}
	}
	return false
}

// withdraw takes all questions back.
func (s *session) withdraw() {
	for _, r := range s.asked {
		if r.refused == "" {
			s.do(worker.Withdraw{Question: r.ID})
		}
	}
	s.asked = nil
}

// replied notes that the program does not wait for an answer any more.
func (s *session) replied(id string) {
	i := slices.IndexFunc(s.asked, func(r *request) bool { return r.ID == id })
	if i < 0 {
		return
	}
	if s.asked[i].refused == "" {
		s.do(worker.Withdraw{Question: id})
	}
	s.asked = slices.Delete(s.asked, i, i+1)
}
