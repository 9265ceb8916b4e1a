package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// TestAllowRefusedHost: a host that a run is refused can be allowed while the run goes on, and the run reaches it; who
// allowed it is shown, stands in the audit log, and can be revoked.
func TestAllowRefusedHost(t *testing.T) {
	for _, level := range []string{"standard", "strict"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("answer")) })) //nolint:errcheck // the run fails then
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			b := newBench(t)
			b.config["sandbox"] = obj{"level": level}
			r := b.serve()
			get := "curl -fsS --noproxy '' " + server.URL
			fetch := get + "; echo begun; until " + get + "; do sleep 0.1; done"
			ends := func(name job.Name, want job.RunState) {
				r.await("the end of "+string(name), func(u *api.Update) bool {
					return u.Kind == api.UpdateJob && u.Name == name && u.Entry.Terminal()
				})
				if j := b.show(string(name)); b.last(j).State != want {
					b.fatalf("%s did not end as %s: %s", name, want, asJSON(t, j))
				}
			}
			b.submit(b.jobs(shell("fetch", b.workspace(), fetch, nil)))
			r.await("the run was refused", onText("fetch", "begun"))
			b.eventually("what was refused is stored, and shown", func() bool {
				out, errs, code := b.command("show", "fetch")
				if code != 0 {
					b.fatalf("show: %d\n%s%s", code, out, errs)
				}
				return strings.Contains(out, host+"  ") && strings.Contains(out, "this machine's loopback") && strings.Contains(out, "scheduler allow fetch HOST")
			})
			if _, errs, code := b.command("allow", "fetch", "http://"+host); code != 2 || !strings.Contains(errs, "neither a host nor an address") {
				b.fatalf("allow of a URL: %d\n%s", code, errs)
			}
			if out, errs, code := b.command("allow", "fetch", host, "--once"); code != 0 || !strings.Contains(out, "by attempt 1 alone, from now on") {
				b.fatalf("allow: %d\n%s%s", code, out, errs)
			}
			ends("fetch", job.RunCompleted)
			if out, errs, code := b.command("allow", "fetch", host, "--tenant"); code != 0 {
				b.fatalf("allow for the tenant: %d\n%s%s", code, out, errs)
			}
			// Another job of the tenant has it from its start. A port of the host's loopback is there for clients that ask no proxy.
			raw := `bash -c 'exec 3<>/dev/tcp/` + strings.Replace(host, ":", "/", 1) + `; printf "GET / HTTP/1.0\r\n\r\n" >&3; grep answer <&3'`
			b.submit(b.jobsOf("tests", "next.yaml", shell("next", b.workspace(), get+" && curl -fsS "+server.URL+" && "+raw, obj{"max_attempts": 1})))
			ends("next", job.RunCompleted)
			if out, _, code := b.command("grants", "ls"); code != 0 || !strings.Contains(out, host) || !strings.Contains(out, "all jobs") {
				b.fatalf("grants ls: %d\n%s", code, out)
			}
			if _, errs, code := b.command("grants", "revoke", host, "--tenant", "tests"); code != 0 {
				b.fatalf("grants revoke: %d\n%s", code, errs)
			}
			b.submit(b.jobsOf("tests", "last.yaml", shell("last", b.workspace(), get, obj{"max_attempts": 1})))
			ends("last", job.RunFailed)
			if out, _, code := b.command("audit", "tail", "--json", "-n", "100"); code != 0 || !strings.Contains(out, "/v1/jobs/{job}/grants") || !strings.Contains(out, "/v1/run-grants/revoke") || !strings.Contains(out, host) {
				b.fatalf("audit: %d\n%s", code, out)
			}
			r.stop()
		})
	}
}
