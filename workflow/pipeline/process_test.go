package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/workflow/pipeline"
)

// copyWorker passes each event on, and kills itself at the third, once.
const copyWorker = `
while read -r line; do
	seq=${line#*'"seq":'}; seq=${seq%%[,\}]*}
	case $line in
	*'"type":"event"'*)
		if [ "$seq" = 3 ] && mkdir "$1" 2>/dev/null; then kill -9 $$; fi
		printf '{"type":"publish","event":"e0","data":%s,"for":%s}\n{"type":"ack","seq":%s}\n' "$seq" "$seq" "$seq";;
	*'"type":"end"'*)
		printf '{"type":"ack","seq":0}\n{"type":"result","status":"completed"}\n'
		exit;;
	esac
done`

// TestRealProcess feeds a process over its real pipes; it is killed by SIGKILL in
// the middle of an event, and the next one goes on there.
func TestRealProcess(t *testing.T) {
	p := streams(1, 0, 2)
	log := openLog(t, newMemory(), p, 5)
	marker := filepath.Join(t.TempDir(), "died")
	run := func() (string, error) {
		cmd := exec.Command("sh", "-c", copyWorker, "worker", marker)
		stdin, err := cmd.StdinPipe()
		check(t, err)
		stdout, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		var last string
		f := &pipeline.Feed{Log: log, Stage: "s0", Now: time.Now, Line: func(l []byte) { last = string(l) }}
		fed := f.Run(t.Context(), stdin, stdout)
		ended := cmd.Wait()
		return last, errors.Join(fed, ended)
	}
	var died *pipeline.DiedError
	if _, err := run(); !errors.As(err, &died) || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("error %v, want that the worker was killed", err)
	}
	if s := status(t, log, "s0"); s.Acked != 2 {
		t.Errorf("the cursor is at %d, want 2", s.Acked)
	}
	last, err := run()
	check(t, err)
	if last != `{"type":"result","status":"completed"}` {
		t.Errorf("the last line was %q", last)
	}
	var got []string
	for _, e := range readLog(t, log, p)[5:] {
		got = append(got, string(e.Data))
	}
	if text := "[" + strings.Join(got, ",") + "]"; text != numbers(5) {
		t.Errorf("published %s", text)
	}
}

// FuzzWorkerLines: whatever a worker prints, the log keeps its promises.
func FuzzWorkerLines(f *testing.F) {
	f.Add([]byte(`{"type":"publish","event":"e0","data":{"a":[1]},"for":1}` + "\n" + `{"type":"ack","seq":1,"state":{"n":1}}` + "\n"))
	f.Add([]byte(`{"type":"publish","event":"e0","for":1}` + "\n" + `{"type":"checkpoint","seq":1,"state":null}` + "\n" + `{"type":"ack","seq":1}` + "\n" + `{"type":"ack","seq":0}`))
	f.Add([]byte(`{"type":"publish","event":"e7","data":"\ud800","for":-1}` + "\n\n\x00\xff\n[1]\n" + `{"type":"ack","seq":"1"}` + "\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		p := streams(1, 0, 3)
		store := newMemory()
		log := openLog(t, store, p, 4)
		feed := &pipeline.Feed{Log: log, Stage: "s0", Now: time.Now}
		// It says all when it has what it may have.
		have, ready := 0, make(chan struct{})
		stdin := writer(func(line []byte) {
			if bytes.Contains(line, []byte(`"type":"event"`)) {
				if have++; have == 3 {
					close(ready)
				}
			}
		})
		err := feed.Run(context.Background(), stdin, io.NopCloser(io.MultiReader(waiter(ready), bytes.NewReader(said))))
		if died := new(pipeline.DiedError); err != nil && !errors.As(err, &died) {
			t.Fatal(err)
		}
		s := status(t, log, "s0")
		events := readLog(t, log, p)
		for _, e := range events[4:] {
			if e.Stage != "s0" || e.Type != "e0" || len(e.For) != 1 || e.For[0] < 0 || e.For[0] > 4 {
				t.Fatalf("event %+v", e)
			}
		}
		again := status(t, openLog(t, store, p, 0), "s0")
		if a, b := marshal(t, s), marshal(t, again); a != b || s.Published != int64(len(events)-4) {
			t.Fatalf("the log says\n%s\nand read anew\n%s", a, b)
		}
	})
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
func (w writer) Close() error                { return nil }

// waiter is an empty reader that ends when the channel is closed.
type waiter chan struct{}

func (w waiter) Read([]byte) (int, error) {
	<-w
	return 0, io.EOF
}
