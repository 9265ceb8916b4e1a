package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// TestDoorSameKey: 32 clients send the same submissions with the same keys, and the
// server is killed with SIGKILL in the middle. Whoever asks gets the same jobs, and
// of each there is one.
func TestDoorSameKey(t *testing.T) {
	t.Parallel()
	const clients, keys, inEach = 32, 12, 3
	b := newBench(t)
	r := b.serve()
	if _, errs, code := b.command("pause"); code != 0 { // it is about what is stored
		b.fatalf("pause: exit code %d\n%s", code, errs)
	}
	submission := func(key int, script string) api.Submission {
		in := api.Submission{Source: "the test"}
		for n := range inEach {
			in.Jobs = append(in.Jobs, tool(job.Name(fmt.Sprintf("k%02d-%d", key, n)), script))
		}
		return in
	}
	var mu sync.Mutex
	ids := map[int][]job.ID{} // by key: what the first to be answered was told
	said, cut := 0, 0
	take := func(key int, jobs api.Jobs) {
		var got []job.ID
		for _, e := range jobs.Jobs {
			got = append(got, e.ID)
		}
		mu.Lock()
		defer mu.Unlock()
		said++
		if ids[key] == nil {
			ids[key] = got
		}
		if !slices.Equal(got, ids[key]) || len(got) != inEach {
			t.Errorf("key %d: one was told of %v, another of %v", key, got, ids[key])
		}
	}
	half, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(done)
		each(clients, func(int) {
			c := b.client()
			for key := range keys {
				if key == keys/2 {
					once.Do(func() { close(half) })
				}
				for {
					out, err := c.Submit(t.Context(), submission(key, "true"), client.WithKey(fmt.Sprint("key ", key)))
					if err == nil {
						take(key, out)
						break
					}
					if p, ok := errors.AsType[*api.Problem](err); ok && p.Status != http.StatusServiceUnavailable {
						t.Errorf("key %d: %v", key, err)
						return
					}
					mu.Lock()
					cut++
					mu.Unlock()
					b.eventually("a server is there again", func() bool { _, err := c.Status(t.Context()); return err == nil })
				}
			}
		})
	}()
	<-half
	r.kill()
	r = b.serve()
	<-done
	t.Logf("%d answers, %d requests cut off by the kill", said, cut)
	if said != clients*keys {
		t.Errorf("%d answers, want %d", said, clients*keys)
	}

	c := b.client()
	stored := 0
	for e, err := range c.All(t.Context(), client.ListQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		var key, n int
		if _, err := fmt.Sscanf(string(e.Spec.Name), "k%d-%d", &key, &n); err != nil || ids[key] == nil || ids[key][n] != e.ID {
			t.Errorf("%s is stored as %s, and told were %v", e.Spec.Name, e.ID, ids[key])
		}
		stored++
	}
	if stored != keys*inEach {
		t.Errorf("%d jobs are stored, want %d", stored, keys*inEach)
	}

	// The key belongs to these jobs, for good.
	for _, in := range []api.Submission{submission(0, "false"), submission(1, "true")} {
		_, err := c.Submit(t.Context(), in, client.WithKey("key 0"))
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Status != http.StatusUnprocessableEntity || p.Name() != "idempotency_key_reused" {
			t.Errorf("other jobs with the same key: %v", err)
		}
	}
	again, err := c.Submit(t.Context(), submission(0, "true"), client.WithKey("key 0"))
	if err != nil {
		t.Fatal(err)
	}
	take(0, again)
	if page, err := c.List(t.Context(), client.ListQuery{}); err != nil || page.Total != keys*inEach {
		t.Errorf("%d jobs, %v, want %d", page.Total, err, keys*inEach)
	}
	r.stop()
	b.soundState()
}
