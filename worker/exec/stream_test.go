package exec_test

import (
	"testing"

	"github.com/agentsched/agentsched/worker"
)

func TestLinesAboutTheStream(t *testing.T) {
	session := start(t, newTask(t, "/bin/sh"))
	s, ok := session.(worker.Streamer)
	if !ok {
		t.Fatal("the session is no Streamer")
	}
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
		if got := s.Streams([]byte(line)); got != want {
			t.Errorf("%q: %t, want %t", line, got, want)
		}
	}
	// In a run that does not stream they are what they were: unknown.
	if events := session.Event([]byte(`{"type":"ack","seq":1}`)); len(events) != 1 {
		t.Errorf("events %+v", events)
	}
}
