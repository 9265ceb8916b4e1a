package server_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/server"
	"github.com/agentsched/agentsched/queue"
)

// TestLargeSubmission: a request of very many jobs is refused before they are
// decoded, in little more memory than it has bytes.
func TestLargeSubmission(t *testing.T) {
	d := open(t, 0, everything(t.TempDir()), func(o *server.Options) { o.Bounds = func() queue.Bounds { return queue.Bounds{Submission: 1000} } })
	job := `{"id":"j%d","tenant":"t","type":"TOOL","worker":"shell","instructions":"say [1,2] and \"]\" {","workspace":{"isolation":"none"}}`
	body := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"source":"s","jobs":[`)
		for i := range n {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, job, i)
		}
		return b.String() + `]}`
	}
	send := func(text string) *http.Response {
		r, err := http.NewRequestWithContext(context.Background(), "POST", "http://scheduler/v1/jobs", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := d.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	large := body(200_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if resp := send(large); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("200,000 jobs are answered %s", resp.Status)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(8*len(large)) {
		t.Errorf("a body of %d bytes took %d bytes of memory", len(large), took)
	}
	if resp := send(body(1000)); resp.StatusCode != http.StatusCreated {
		t.Errorf("1000 jobs are answered %s", resp.Status)
	}
	if resp := send(body(1001)); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("1001 jobs are answered %s", resp.Status)
	}
}
