package queuetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func write(space, key, value string) queue.Write {
	return queue.Write{Record: queue.Record{Space: space, Key: key, Value: json.RawMessage(value), At: epoch}}
}

func once(w queue.Write) queue.Write { w.Once = true; return w }

// keys returns the keys of a space's records.
func (e *env) keys(space, after string, limit int) []string {
	e.Helper()
	list, err := e.store.Records(e.ctx, space, after, limit)
	if err != nil {
		e.Fatal(err)
	}
	keys := []string{}
	for _, r := range list {
		if r.Space != space {
			e.Errorf("a record of %q among those of %q", r.Space, space)
		}
		keys = append(keys, r.Key)
	}
	return keys
}

func (e *env) spaces(prefix string) []string {
	e.Helper()
	list, err := e.store.Spaces(e.ctx, prefix)
	if err != nil {
		e.Fatal(err)
	}
	return list
}

// journalOnce: a record is written as it is, again, and once.
func journalOnce(e *env) {
	e.apply(once(write("s", "k", `{"a": [1, "<&>"]}`)))
	first, err := e.store.Record(e.ctx, "s", "k")
	if err != nil {
		e.Fatal(err)
	}
	if first.Space != "s" || first.Key != "k" || !first.At.Equal(epoch) {
		e.Errorf("record %s", show(first))
	}
	wantSame(e, "value", first.Value, json.RawMessage(`{"a":[1,"<&>"]}`))
	same := once(write("s", "k", "{ \"a\":[1,\"<&>\"] }\n"))
	same.Record.At = epoch.Add(time.Hour)
	e.apply(same)
	e.refuse(queue.ErrExists, once(write("s", "k", `{"a":[2,"<&>"]}`)))
	e.refuse(queue.ErrExists, write("s", "other", `1`), once(write("s", "k", `null`)))
	e.reopen()
	after, err := e.store.Record(e.ctx, "s", "k")
	wantSame(e, "the first one", after, first)
	if err != nil {
		e.Error(err)
	}
	if _, err := e.store.Record(e.ctx, "s", "other"); !errors.Is(err, queue.ErrNotFound) {
		e.Errorf("refused with another: %v, want %v", err, queue.ErrNotFound)
	}
	replace := write("s", "k", `2`)
	replace.Record.At = epoch.Add(time.Hour)
	e.apply(replace)
	if got, err := e.store.Record(e.ctx, "s", "k"); err != nil || string(got.Value) != "2" || !got.At.Equal(epoch.Add(time.Hour)) {
		e.Errorf("replaced: %s, %v", show(got), err)
	}
	e.apply(write("s", "none", "")) // without a value: null
	if got, err := e.store.Record(e.ctx, "s", "none"); err != nil || string(got.Value) != "null" {
		e.Errorf("without a value: %s, %v", show(got), err)
	}
	for what, bad := range map[string]queue.Write{"no space": write("", "k", `1`), "no key": write("s", "", `1`), "no JSON": write("s", "k", `{`), "two values": write("s", "k", `1 2`)} {
		if err := e.store.Apply(e.ctx, bad); err == nil {
			e.Errorf("a record with %s was stored", what)
		}
	}
	for _, nowhere := range [][2]string{{"s", "K"}, {"S", "k"}, {"", ""}} {
		if _, err := e.store.Record(e.ctx, nowhere[0], nowhere[1]); !errors.Is(err, queue.ErrNotFound) {
			e.Errorf("record %q: %v, want %v", nowhere, err, queue.ErrNotFound)
		}
	}
}

// journalOrder: records come in the order of their keys' bytes, in pages.
func journalOrder(e *env) {
	keys := []string{"10", "9", "a", "B", "é", "a b", "a/b", "a%", "_", "00000000000000000002", "00000000000000000010", "\x01", "日本"}
	for _, k := range keys {
		e.apply(write("job/1/steps", k, `1`), write("job/2/steps", k, `2`))
	}
	slices.Sort(keys)
	wantSame(e, "all", e.keys("job/1/steps", "", 100), keys)
	wantSame(e, "without a limit", e.keys("job/1/steps", "", 0), keys)
	for size := 1; size < 5; size++ {
		var paged []string
		for after := ""; ; after = paged[len(paged)-1] {
			page := e.keys("job/1/steps", after, size)
			if len(page) == 0 {
				break
			}
			if len(page) > size {
				e.Fatalf("a page of %d, want at most %d", len(page), size)
			}
			paged = append(paged, page...)
		}
		wantSame(e, fmt.Sprint("in pages of ", size), paged, keys)
	}
	wantSame(e, "behind a key that is not there", e.keys("job/1/steps", "a$", 1), []string{"a%"})
	wantSame(e, "behind the last", e.keys("job/1/steps", "日本", 9), []string{})
	wantSame(e, "of another space", e.keys("job/1", "", 9), []string{})

	for _, s := range []string{"job/10/steps", "job/1/steps2", "batch/1/x", "job/1"} {
		e.apply(write(s, "k", `1`))
	}
	for prefix, want := range map[string][]string{
		"":        {"batch/1/x", "job/1", "job/1/steps", "job/1/steps2", "job/10/steps", "job/2/steps"},
		"job/1":   {"job/1", "job/1/steps", "job/1/steps2", "job/10/steps"},
		"job/1/":  {"job/1/steps", "job/1/steps2"},
		"job/3/":  {},
		"batch/%": {},
	} {
		wantSame(e, "spaces that begin with "+prefix, e.spaces(prefix), want)
	}
}

// journalErase removes the records up to a key, of one space.
func journalErase(e *env) {
	for i := range 10 {
		e.apply(write("a", fmt.Sprint(i), `1`), write("b", fmt.Sprint(i), `1`))
	}
	e.apply(queue.Erase{Space: "a"}, queue.Erase{Space: "nothing", UpTo: "9"})
	if got := e.keys("a", "", 99); len(got) != 10 {
		e.Errorf("erased up to nothing: left are %v", got)
	}
	e.apply(queue.Erase{Space: "a", UpTo: "35"})
	wantSame(e, "left", e.keys("a", "", 99), []string{"4", "5", "6", "7", "8", "9"})
	e.apply(queue.Erase{Space: "a", UpTo: "35"}, queue.Erase{Space: "a", UpTo: "9"})
	wantSame(e, "left", e.keys("a", "", 99), []string{})
	wantSame(e, "of the other", len(e.keys("b", "", 99)), 10)
	wantSame(e, "spaces", e.spaces(""), []string{"b"})
	e.apply(once(write("a", "1", `2`))) // it is free again
}

// journalTogether: a record is written with what it belongs to, or not at all.
func journalTogether(e *env) {
	id := e.enqueueOne("a")
	c := e.claimOne(epoch)
	n := e.begin(c, epoch)
	done := write(queue.JobSpace(id, "result"), "1", `"done"`)
	old := succeed(c, n, epoch, epoch)
	old.Fence++
	e.refuse(queue.ErrFenced, done, old)
	e.refuse(queue.ErrFenced, old, done)
	wantSame(e, "spaces", e.spaces(""), []string{})
	e.apply(write("x", "1", `1`))
	e.refuse(queue.ErrFenced, queue.Erase{Space: "x", UpTo: "1"}, old)
	wantSame(e, "spaces", e.spaces(""), []string{"x"})
	e.apply(done, succeed(c, n, epoch, epoch))
	e.refuse(queue.ErrFenced, write(queue.JobSpace(id, "result"), "1", `"done again"`), succeed(c, n, epoch, epoch))
	if got, err := e.store.Record(e.ctx, queue.JobSpace(id, "result"), "1"); err != nil || string(got.Value) != `"done"` {
		e.Errorf("record %s, %v", show(got), err)
	}
}

// journalConcurrently: of many that write a record once, with different values,
// one did, and all others know.
func journalConcurrently(e *env) {
	var wg sync.WaitGroup
	var lock sync.Mutex
	wrote := map[string]string{}
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				key, value := fmt.Sprintf("%02d", i), fmt.Sprint(w)
				err := e.store.Apply(e.ctx, once(write("s", key, value)))
				if err != nil && !errors.Is(err, queue.ErrExists) {
					e.Errorf("%v", err)
				}
				if err == nil {
					lock.Lock()
					if by, twice := wrote[key]; twice {
						e.Errorf("record %s was written once by %s and by %s", key, by, value)
					}
					wrote[key] = value
					lock.Unlock()
				}
			}
		})
	}
	wg.Wait()
	list, err := e.store.Records(e.ctx, "s", "", 99)
	if err != nil || len(list) != 20 {
		e.Fatalf("%d records, %v", len(list), err)
	}
	for _, r := range list {
		if string(r.Value) != wrote[r.Key] {
			e.Errorf("record %s holds %s, and %s wrote it", r.Key, r.Value, wrote[r.Key])
		}
	}
}

// pruneRecords: records go with their job, and with the last job of their batch.
func pruneRecords(e *env) {
	a, b := e.done("a", epoch), e.done("b", epoch.Add(time.Hour))
	for _, id := range []job.ID{a, b} {
		for i := range 3 {
			e.apply(write(queue.JobSpace(id, "steps"), fmt.Sprint(i), `1`), write(queue.JobSpace(id, "log"), fmt.Sprint(i), `1`))
		}
	}
	e.apply(write(queue.BatchSpace(e.batch.ID, "pipeline"), "1", `1`), write("elsewhere", "1", `1`), write("job/"+string(a)+"x/steps", "1", `1`))
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: epoch.Add(time.Minute)}), []string{"a"})
	want := []string{queue.BatchSpace(e.batch.ID, "pipeline"), "elsewhere", "job/" + string(a) + "x/steps", queue.JobSpace(b, "log"), queue.JobSpace(b, "steps")}
	slices.Sort(want)
	wantSame(e, "spaces", e.spaces(""), want)
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: epoch.Add(2 * time.Hour)}), []string{"b"})
	wantSame(e, "spaces", e.spaces(""), []string{"elsewhere", "job/" + string(a) + "x/steps"})
	// More than is deleted at once.
	c := e.done("c", epoch)
	const parts, each = 6, 1000
	for p := range parts {
		var ops []queue.Op
		for i := range each {
			ops = append(ops, write(queue.JobSpace(c, "steps"), fmt.Sprint(p*each+i), `1`), write(queue.BatchSpace(e.batch.ID, "log"), fmt.Sprint(p*each+i), `1`))
		}
		e.apply(ops...)
	}
	wantSame(e, "forgotten", e.pruned(queue.PruneSpec{Before: epoch.Add(time.Minute)}), []string{"c"})
	wantSame(e, "spaces", e.spaces(""), []string{"elsewhere", "job/" + string(a) + "x/steps"})
}

// pruneJoined: no job of a workflow is forgotten while another of it is unfinished,
// since that may ask what it has made.
func pruneJoined(e *env) {
	before := epoch.Add(time.Minute)
	e.done("need", epoch, joined)
	e.fail("failed", job.Timeout, epoch, joined)
	waits := e.enqueueOne("waits", joined, held(job.HeldForNeeds))
	asked := e.asked("asked", epoch, joined)
	own := e.batch
	e.batch = newBatch("other")
	e.done("alone", epoch)
	e.done("of a finished one", epoch, joined)
	e.batch = own
	all := queue.PruneSpec{Before: before, DeadLettersBefore: before}
	wantSame(e, "forgotten", e.pruned(all), []string{"alone", "of a finished one"})
	e.apply(queue.Skip{ID: waits, Why: "w", Now: epoch})
	wantSame(e, "while a person is asked", e.pruned(all), []string{})
	e.apply(queue.Decide{ID: asked.ID, Attempt: 1, Approved: true, Now: epoch})
	if got := e.pruned(all); len(got) != 4 {
		e.Errorf("forgot %v, want all of the workflow", got)
	}
}
