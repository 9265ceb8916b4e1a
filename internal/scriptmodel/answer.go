package scriptmodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// maxBody bounds a request; a conversation with several floods of 5 MB in it still fits.
const maxBody = 256 << 20

// handler serves one API: read the conversation, find its place in the script, play that turn.
func (s *Server) handler(api string, d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
			message := "content-encoding " + coding + " is not understood, send the request as it is"
			writeJSON(w, http.StatusUnsupportedMediaType, d.failure(http.StatusUnsupportedMediaType, message))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			writeJSON(w, http.StatusBadRequest, d.failure(http.StatusBadRequest, "read body: "+err.Error()))
			return
		}
		if s.opts.Trace != nil {
			s.opts.Trace(r.URL.Path, r.Header, body)
		}
		c, err := d.parse(body)
		if err != nil {
			writeJSON(w, http.StatusBadRequest, d.failure(http.StatusBadRequest, err.Error()))
			return
		}
		turn, p, seen := s.choose(c)
		seen.At, seen.API = s.opts.Now(), api
		seen.HasKey = r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != ""
		s.record(seen)

		rep := s.compose(c, turn, p, hash(string(body)))
		switch {
		case turn.Fault != Fault{}:
			s.fail(w, r, d, turn.Fault, rep, c.stream)
		case c.stream:
			s.send(w, r, d.stream(rep), rep)
		default:
			writeJSON(w, http.StatusOK, d.whole(rep))
		}
	}
}

// choose finds the turn to play.
func (s *Server) choose(c conversation) (Turn, position, Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	script, ok := s.scripts[c.model]
	if !ok {
		script = *s.opts.Default
	}
	seen := Request{Model: c.model, Stream: c.stream, Messages: len(c.entries), Tools: len(c.tools)}
	if turns, ok := script.Parts[c.prompt()]; ok {
		script = Play(turns...)
	} else if len(c.tools) == 0 {
		seen.Side = true
		return sideTurn(script), position{waiting: -1}, seen
	}
	if key := hash(c.model, c.prompt()); s.failed[key] < script.FailFirst {
		s.failed[key]++
		seen.Fault = true
		return Turn{Fault: script.Fault}, position{waiting: -1}, seen
	}
	p := locate(c, len(script.OnResume) > 0)
	turns := script.Turns
	if p.resumed {
		turns = script.OnResume
	}
	turn := Say("Done.") // the script is over
	if p.turn < len(turns) {
		turn = turns[p.turn]
	}
	seen.Turn, seen.Resumed, seen.Fault = p.turn, p.resumed, turn.Fault != Fault{}
	return turn, p, seen
}

// sideTurn answers what a CLI asks for itself, such as a title: never a fault, and no command, since there is no tool.
func sideTurn(script Script) Turn {
	if len(script.Turns) > 0 {
		if t := script.Turns[0]; t.Command == "" && t.Tool == "" && t.Fault == (Fault{}) && t.Interval == 0 {
			return t
		}
	}
	return Say("Scripted run")
}

// compose makes the reply of a turn. A command for which the request declares no tool is said in words.
func (s *Server) compose(c conversation, t Turn, p position, id uint64) reply {
	rep := reply{
		id: fmt.Sprintf("%016x", id), model: c.model, created: s.opts.Now(), interval: t.Interval, usage: t.Usage,
	}
	if rep.usage == (Usage{}) {
		rep.usage = defaultUsage
	}
	text, callID := t.Text, "call_"+rep.id
	shell, hasShell := c.shell()
	_, canPoll := c.tool(pollTool)
	structured, wantsTool := c.tool(structuredTool)
	switch {
	case p.waiting >= 0 && canPoll:
		rep.call, text = poll(callID, p.waiting), ""
	case t.JSON && wantsTool:
		rep.call, text = &call{id: callID, name: structured.name, args: mustJSON(instance(structured.schema, t.Text))}, ""
	case t.JSON && c.schema != nil:
		text = string(mustJSON(instance(c.schema, t.Text)))
	case t.JSON:
		text = string(mustJSON(object{"answer": t.Text}))
	case t.Tool != "":
		if other, has := c.toolEnding(t.Tool); has {
			rep.call = &call{id: callID, name: other.name, space: other.space, args: json.RawMessage(t.Args)}
		} else {
			text = "I would call a tool, but it is not declared: " + t.Tool
		}
	case t.Command != "" && hasShell:
		rep.call = &call{id: callID, name: shell.name, args: shell.run(t.Command)}
	case t.Command != "":
		text = "I would run a command, but no shell tool is declared: " + t.Command
	}
	rep.chunks = chop(text, t.Chunks)
	return rep
}

// send streams events, pausing where the script says so.
func (s *Server) send(w http.ResponseWriter, r *http.Request, events []event, rep reply) {
	startStream(w)
	flush := http.NewResponseController(w)
	for _, e := range events {
		if e.paced && rep.interval > 0 {
			if s.opts.Pause(r.Context(), rep.interval) != nil {
				panic(http.ErrAbortHandler) // cut, so that it cannot be taken for the whole answer
			}
		}
		if _, err := w.Write(e.bytes()); err != nil {
			return
		}
		if err := flush.Flush(); err != nil {
			return
		}
	}
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == requestsKept {
		s.requests = append(s.requests[:0], s.requests[requestsKept/2:]...)
	}
	s.requests = append(s.requests, r)
}

// chop cuts a text into n pieces of about the same length, none of them empty, on the border of runes.
func chop(text string, n int) []string {
	runes := []rune(text)
	n = max(1, min(n, len(runes)))
	var pieces []string
	for i := range n {
		if piece := string(runes[i*len(runes)/n : (i+1)*len(runes)/n]); piece != "" {
			pieces = append(pieces, piece)
		}
	}
	return pieces
}
