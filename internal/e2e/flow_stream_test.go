package e2e

// Stages that stream: one worker as long as the pipeline.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// streamer sets up the worker "stream": its instructions are a command that is run
// for each event.
func (b *bench) streamer() {
	b.t.Helper()
	program := b.folder("stream")
	if out, err := exec.Command("go", "build", "-o", program, "../../examples/workers/stream").CombinedOutput(); err != nil {
		b.t.Fatalf("build the worker: %v\n%s", err, out)
	}
	b.config["workers"].(obj)["stream"] = obj{"adapter": "exec", "command": []string{program}}
}

// copies is a script of a stage that does not stream: it publishes the data of
// each event, which is a number, as an event of its own type.
func copies(event string) string {
	return fmt.Sprintf(`out=
for n in $(grep -o '"data":[0-9]*' "$AGENTSCHED_INPUT" | cut -d: -f2); do out="$out,{\"type\":\"%s\",\"data\":$n}"; done
echo "{\"events\":[${out#,}]}"`, event)
}

// twice is the command of the stage that streams. It says in the file "done" that
// it was given a number, and publishes the double. At a number for which there is
// a file hold-N it writes its worker's pid into at-N and waits for go-N; the poison
// kills it, until there is a file "cured". At the end it publishes how many events
// the stage has had.
func (b *bench) twice(poison int) string {
	return fmt.Sprintf(`cd %s
if [ "$EVENT" = end ]; then echo "total $COUNT"; exit; fi
read n; echo $n >>done
if [ $n = %d ] && ! [ -e cured ]; then exit 7; fi
if [ -e hold-$n ]; then echo $PPID >at-$n.new; mv at-$n.new at-$n; while ! [ -e go-$n ]; do sleep 0.02; done; fi
echo "double $((n * 2))"`, b.dir, poison)
}

// streaming writes a job file of three stages, of which the second streams the
// numbers 1 to n.
func (b *bench) streaming(n, poison, attempts int, more obj) string {
	b.t.Helper()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i + 1
	}
	path := filepath.Join(b.dir, "jobs.yaml")
	b.write(path, asJSON(b.t, obj{
		"tenant": "tests",
		"jobs": []obj{
			with(shell("source", nil, copies("item"), nil), obj{"input": numbers}),
			with(obj{"id": "twice", "worker": "stream", "instructions": b.twice(poison), "capabilities": []string{"run_commands"}, "limits": obj{"max_attempts": attempts}}, more),
			shell("sink", nil, copies("sunk"), nil),
		},
		"pipelines": []obj{{"id": "line", "stages": []obj{
			{"id": "source", "job": "source", "publishes": []string{"item"}, "batch": 3},
			{"id": "twice", "job": "twice", "subscribes": []string{"item"}, "publishes": []string{"double", "total"}, "streams": true, "buffer": 4},
			{"id": "sink", "job": "sink", "subscribes": []string{"double"}, "publishes": []string{"sunk"}, "batch": 4, "buffer": 4},
		}}},
	}))
	return path
}

// published returns the data of all events of a type in their order.
func (b *bench) published(event job.EventType) (data []string) {
	b.t.Helper()
	for _, e := range b.streamed("line") {
		if e.Type == event {
			data = append(data, string(e.Data))
		}
	}
	return data
}

// doubles returns what comes of the numbers 1 to n.
func doubles(n int) (data []string) {
	for i := range n {
		data = append(data, strconv.Itoa(2*i+2))
	}
	return data
}

// at waits until the stage's worker holds at a number, and returns its pid.
func (b *bench) at(n int) (pid int) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("the worker holds at %d", n), func() bool { return len(b.lines(fmt.Sprintf("at-%d", n))) == 1 })
	pid, err := strconv.Atoi(b.lines(fmt.Sprintf("at-%d", n))[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return pid
}

func (b *bench) hold(numbers ...int) {
	b.t.Helper()
	for _, n := range numbers {
		b.write(b.folder(fmt.Sprintf("hold-%d", n)), "")
	}
}

func (b *bench) letGo(n int) {
	b.t.Helper()
	b.write(b.folder(fmt.Sprintf("go-%d", n)), "")
}

// TestStreamKilled: at several events the stage's worker is killed, or its core, or
// all of it. Each number has its double in the log once, in order; what was
// acknowledged is not done again; and no death counts as an attempt of the job.
func TestStreamKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.unheld() // its runs tell process ids
	b.streamer()
	b.hold(3, 5, 6, 9, 11)
	file := b.streaming(12, 0, 2, nil)

	r := b.start("run", file)
	for _, n := range []int{3, 5} { // its worker alone
		if err := syscall.Kill(b.at(n), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		b.letGo(n)
	}
	b.at(6)
	r.killAll()
	r.close()
	if err := os.Remove(b.folder("at-6")); err != nil {
		t.Fatal(err)
	}
	r = b.start("run", file)
	b.at(6)
	r.signal(syscall.SIGINT) // the scheduler is asked to end
	r.exit(130)
	b.letGo(6)
	r = b.start("run", file)
	b.at(9)
	if got := b.published("sunk"); len(got) < 4 {
		t.Errorf("the last stage has only done %v while the one before it is at its ninth", got)
	}
	r.killCore()
	b.letGo(9)
	b.at(11)
	r.killAll()
	r.close()
	b.letGo(11)
	r = b.start("run", file)
	r.exit(0)

	for event, want := range map[job.EventType][]string{"double": doubles(12), "sunk": doubles(12), "total": {"12"}} {
		if got := b.published(event); !slices.Equal(got, want) {
			t.Errorf("events %s: %v, want %v", event, got, want)
		}
	}
	if got, want := strings.Join(b.lines("done"), " "), "1 2 3 3 4 5 5 6 6 6 7 8 9 9 10 11 11 12"; got != want {
		t.Errorf("the worker was given %s, want %s", got, want)
	}
	if e := b.entry("twice"); e.ExitKind != job.ExitSucceeded || e.Attempts != 7 {
		t.Errorf("at its end: %s", asJSON(t, e))
	}
	if o := b.last(b.show("twice")); o.Answer != "12 events" {
		t.Errorf("its last worker said %q", o.Answer)
	}
	b.soundState()
}

// TestStreamPoison: an event that kills its worker goes to the dead letters of the
// stage, and the others go on; a replay of the stage, which has not ended, does it
// again and publishes nothing twice.
func TestStreamPoison(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.streamer()
	b.hold(6)
	file := b.streaming(8, 4, 2, nil)
	r := b.start("run", file)
	b.at(6)
	if out, errs, code := b.command("pipelines", "ls", "line"); code != 0 || !strings.Contains(out, "stage twice could not handle event") || !strings.Contains(out, "CRASH") {
		t.Errorf("pipelines ls: exit code %d\n%s%s", code, out, errs)
	}
	if got := strings.Join(b.lines("done"), " "); got != "1 2 3 4 4 5 6" {
		t.Errorf("the worker was given %s", got)
	}
	if err := os.Remove(b.folder("at-6")); err != nil {
		t.Fatal(err)
	}
	b.write(b.folder("cured"), "")
	if out, errs, code := b.command("pipelines", "replay", "line", "--stage", "twice", "--from", "1"); code != 0 || !strings.Contains(out, "does its events again from 9 on") {
		t.Fatalf("replay: exit code %d\n%s%s", code, out, errs)
	}
	b.at(6) // by another worker
	b.letGo(6)
	r.exit(0)
	if got, want := strings.Join(b.lines("done"), " "), "1 2 3 4 4 5 6 1 2 3 4 5 6 7 8"; got != want {
		t.Errorf("the worker was given %s, want %s", got, want)
	}
	// The fourth has its place behind those that were published before.
	want := []string{"2", "4", "6", "10", "8", "12", "14", "16"}
	for event, want := range map[job.EventType][]string{"double": want, "sunk": want, "total": {"8"}} {
		if got := b.published(event); !slices.Equal(got, want) {
			t.Errorf("events %s: %v, want %v", event, got, want)
		}
	}
	if e := b.entry("twice"); e.ExitKind != job.ExitSucceeded {
		t.Errorf("at its end: %s", asJSON(t, e))
	}
	b.soundState()
}

// TestAllStream: each stage streams, the first and the last too, and the one in the
// middle has three events at once. With a bounded buffer between them, and after
// deaths, each number goes through once and in order.
func TestAllStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.streamer()
	b.hold(7, 20)
	const n = 30
	one := func(id, publishes, subscribes string, more obj) obj {
		s := obj{"id": id, "job": id, "publishes": []string{publishes}, "streams": true, "buffer": 4}
		if subscribes != "" {
			s["subscribes"] = []string{subscribes}
		}
		return with(s, more)
	}
	passes := func(event string) obj {
		return obj{"instructions": `[ "$EVENT" = end ] || echo "` + event + ` $(cat)"`}
	}
	file := b.streaming(n, 0, 3, nil)
	b.edit(file, func(doc obj) {
		for i, j := range doc["jobs"].([]any) {
			if i != 1 {
				with(j.(obj), with(passes([]string{"item", "", "sunk"}[i]), obj{"worker": "stream"}))
			}
		}
		doc["pipelines"] = []obj{{"id": "line", "stages": []obj{
			one("source", "item", "", nil), one("twice", "double", "item", obj{"batch": 3, "publishes": []string{"double", "total"}}), one("sink", "sunk", "double", nil),
		}}}
	})
	r := b.start("run", file)
	b.at(7)
	r.killAll()
	r.close()
	if got := len(b.published("item")); got > 6+4 {
		t.Errorf("%d items were published while the next stage had done 6, and has room for 4", got)
	}
	b.letGo(7)
	r = b.start("run", file)
	if err := syscall.Kill(b.at(20), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.letGo(20)
	r.exit(0)
	var items []string
	for i := range n {
		items = append(items, strconv.Itoa(i+1))
	}
	for event, want := range map[job.EventType][]string{"item": items, "double": doubles(n), "sunk": doubles(n), "total": {strconv.Itoa(n)}} {
		if got := b.published(event); !slices.Equal(got, want) {
			t.Errorf("events %s: %v, want %v", event, got, want)
		}
	}
	b.soundState()
}

// TestStreamCancelled: a stage that is cancelled ends its worker, and keeps nobody
// waiting.
func TestStreamCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.streamer()
	b.hold(3)
	r := b.start("run", b.streaming(9, 0, 3, nil))
	b.at(3)
	if out, errs, code := b.command("cancel", "twice"); code != 0 {
		t.Fatalf("cancel: exit code %d\n%s%s", code, out, errs)
	}
	r.exit(1)
	if got := b.published("sunk"); !slices.Equal(got, doubles(2)) {
		t.Errorf("the last stage has done %v", got)
	}
	for name, want := range map[job.Name]job.ExitKind{"source": job.ExitSucceeded, "twice": job.ExitCancelled, "sink": job.ExitSucceeded} {
		if e := b.entry(name); e.ExitKind != want {
			t.Errorf("%s: %s", name, asJSON(t, e))
		}
	}
	b.soundState()
}

// TestStreamIdle: a worker whose time runs out while there is nothing for it to do
// is followed by another, however often.
func TestStreamIdle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.streamer()
	// Three events take a worker no time, but a busy machine may take seconds to start one.
	file := b.streaming(3, 0, 3, obj{"limits": obj{"max_attempts": 3, "timeout": "3s"}})
	b.edit(file, func(doc obj) {
		source := doc["jobs"].([]any)[0].(obj)
		source["instructions"] = until(b.folder("begin")) + "\n" + source["instructions"].(string)
	})
	r := b.start("run", file)
	r.awaitCore(1)
	b.eventually("the fifth worker", func() bool {
		for _, e := range b.list() {
			if e.Spec.Name == "twice" {
				return e.Attempts >= 5
			}
		}
		return false
	})
	b.write(b.folder("begin"), "")
	r.exit(0)
	if got := b.published("sunk"); !slices.Equal(got, doubles(3)) {
		t.Errorf("the last stage has done %v", got)
	}
	b.soundState()
}

// edit changes a job file.
func (b *bench) edit(file string, change func(doc obj)) {
	b.t.Helper()
	text, err := os.ReadFile(file)
	var doc obj
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	change(doc)
	b.write(file, asJSON(b.t, doc))
}

// TestStreamRefused: what cannot run to its end is refused before anything starts.
func TestStreamRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config["workers"].(obj)["stream"] = obj{"adapter": "shell"}
	b.config["concurrency"] = obj{"max": 1}
	b.write(b.configFile(), asJSON(t, b.config))
	_, errs, code := b.command("run", "--config", b.configFile(), b.streaming(3, 0, 1, nil))
	for _, want := range []string{"stage twice: streams: true needs a worker of the adapter exec", "need 2 workers at once", "concurrency.max is 1"} {
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("exit code %d, want 2 and %q:\n%s", code, want, errs)
		}
	}
}
