package exec_test

import (
	"testing"

	"github.com/agentsched/agentsched/worker"
)

func TestLinesAboutTheStream(t *testing.T) {
	task := newTask(t, "/bin/sh")
	task.Streams = true
	s := start(t, task)
	for line, want := range map[string]bool{
		`{"type":"publish","event":"e","for":1}`: true,
		` {"seq":1,"type":"ack"}` + "\r":         true,
		`{"type":"checkpoint","seq":1}`:          true,
		`{"type":"text","text":"ack"}`:           false,
		`{"type":"result","status":"completed"}`: false,
		`{"type":"ack"`:                          false,
		`["ack"]`:                                false,
		`ack`:                                    false,
		``:                                       false,
	} {
		actions := steps(s, worker.Output{Line: []byte(line)})
		forward, got := worker.Forward{}, false
		if len(actions) == 1 {
			forward, got = actions[0].(worker.Forward)
		}
		if got != want || got && string(forward.Line) != line {
			t.Errorf("%q: %+v, want it forwarded: %t", line, actions, want)
		}
	}
	if got := written(s, worker.StreamLines{Lines: []byte("{}\n")}); got != "{}\n" {
		t.Errorf("the program is told %q", got)
	}
	// In a run that does not stream they are what they were: unknown.
	if events := events(start(t, newTask(t, "/bin/sh")), []byte(`{"type":"ack","seq":1}`)); len(events) != 1 {
		t.Errorf("events %+v", events)
	}
}
