package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// TestNamesAtEachDoor: a tenant that no grant could name is refused by each route that
// takes one.
func TestNamesAtEachDoor(t *testing.T) {
	d := open(t, 0, everything(t.TempDir()))
	for _, tenant := range []string{"a/b", "a\nb", "\x1b[2J"} {
		s := spec("x")
		s.Tenant = job.Tenant(tenant)
		resp, _ := d.post("/v1/jobs", api.Submission{Source: "s", Jobs: []job.Spec{s}})
		if p := problemIn(t, resp); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "is not a name of a tenant") {
			t.Errorf("a job of tenant %q: %+v", tenant, p)
		}
		resp, _ = d.post("/v1/credits", api.TopUp{Tenant: job.Tenant(tenant), Credits: 1})
		if p := problemIn(t, resp); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "is not a name of a tenant") {
			t.Errorf("credits of tenant %q: %+v", tenant, p)
		}
		for method, params := range map[string]string{
			"enqueue":      fmt.Sprintf(`{"tenant":%q}`, tenant),
			"update_grant": fmt.Sprintf(`{"tenant":%q,"tokens":1}`, tenant),
			"claim":        fmt.Sprintf(`{"worker_id":%q}`, tenant),
		} {
			if method == "claim" && tenant == "a/b" {
				continue // a worker outside may call itself so
			}
			text := strings.NewReplacer(`\x1b`, `\u001b`).Replace(`{"jsonrpc":"2.0","id":1,"method":"kernel.sched.` + method + `","params":` + params + `}`)
			answer, err := d.http.Post("http://scheduler/v1/rpc", "application/json", strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if said := readAll(t, answer); !strings.Contains(said, "is not a name") {
				t.Errorf("kernel.sched.%s with %q: %s", method, tenant, said)
			}
		}
	}
}

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
