package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// talkerArg makes this program a worker that says when it is told and answered: see talkCase.
const talkerArg = "talker"

// talkerLine is a line of the worker protocol, of either direction.
type talkerLine struct {
	Type      string   `json:"type"`
	Protocol  int      `json:"protocol,omitempty"`
	Converses []string `json:"converses,omitempty"`
	ID        string   `json:"id,omitempty"`
	Kind      string   `json:"kind,omitempty"`
	Text      string   `json:"text,omitempty"`
	Question  string   `json:"question,omitempty"`
	Message   string   `json:"message,omitempty"`
	State     string   `json:"state,omitempty"`
	Status    string   `json:"status,omitempty"`
}

// stamp is the time as talkers and their callers tell it to each other, on one host.
func stamp() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

// since returns the seconds from a stamp until now.
func since(text string) (float64, error) {
	then, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no stamp: %w", text, err)
	}
	return time.Duration(time.Now().UnixNano() - then).Seconds(), nil
}

// talker takes messages, each of which is the time when it was said, until one says "end". It asks a question after each, which is the
// time of that, and says, when that is answered with the time of the answer, how many seconds message and answer were on their way.
func talker(stdin io.Reader, stdout io.Writer) error {
	in, out := json.NewDecoder(bufio.NewReader(stdin)), json.NewEncoder(stdout)
	if err := out.Encode(talkerLine{Type: "hello", Protocol: 1, Converses: []string{"messages", "questions"}}); err != nil {
		return err
	}
	for word := 0.0; ; {
		var l talkerLine
		if err := in.Decode(&l); err != nil {
			return err
		}
		took, err := 0.0, error(nil)
		if l.Type == "message" && l.Text != "end" || l.Type == "answer" {
			if took, err = since(l.Text); err != nil {
				return err
			}
		}
		var say []talkerLine
		switch {
		case l.Type == "message" && l.Text == "end":
			say = []talkerLine{{Type: "settle", Message: l.ID, State: "folded"}, {Type: "result", Status: "completed"}}
		case l.Type == "message":
			word = took
			say = []talkerLine{{Type: "settle", Message: l.ID, State: "folded"}, {Type: "question", ID: l.ID, Kind: "words"}}
		case l.Type == "answer":
			say = []talkerLine{{Type: "text", Text: fmt.Sprint(word, " ", took)}}
		}
		for _, s := range say {
			if s.Type == "question" {
				s.Text = stamp()
			}
			if err := out.Encode(s); err != nil {
				return err
			}
		}
		if len(say) > 0 && say[len(say)-1].Type == "result" {
			return nil
		}
	}
}
