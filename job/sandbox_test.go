package job_test

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

func TestNetworkOfJob(t *testing.T) {
	for _, test := range []struct {
		network string // entries, divided by blanks
		want    string // what the message holds; "" for none
	}{
		{"none", ""},
		{"full", ""},
		{"go npm example.com *.example.com example.com:8443 10.0.0.5:5432 [::1]:80 [fd00::1] localhost localhost:3000", ""},
		{"none go", `network[0]: "none" stands alone`},
		{"go full", `network[1]: "full" stands alone`},
		{"gihub", `network[0]: "gihub" is neither a preset (crates, github, go, npm, pypi) nor a host with a dot; did you mean github?`},
		{"https://example.com", `is not a host, want one such as example.com`},
		{"example.com/path", `is not a host`},
		{"*", `is not a host`},
		{"*.*.example.com", `is not a host`},
		{"a.example.com a.example.com", `network[1]: "a.example.com" is listed twice`},
		{"example.com:", `is not a host`},
		{"user@example.com", `is not a host`},
		{"example.com:65535", ""},
		{"go example.com:65536", `network[1]: "example.com:65536" has port "65536", want a number of 1 to 65535`},
		{"[::1]:0", `network[0]: "[::1]:0" has port "0", want a number of 1 to 65535`},
		{"[12:34]", `network[0]: "[12:34]" has no address in its brackets`},
		{"*.com", `network[0]: "*.com" covers all of .com: name a domain below it, such as *.example.com`},
	} {
		t.Run(test.network, func(t *testing.T) {
			s := job.Spec{Name: "a", Type: job.WorkerTask, Worker: "codex", Instructions: "x", Workspace: job.Workspace{Isolation: job.NoWorkspace},
				Network: strings.Fields(test.network)}
			s.Limits.SetDefaults()
			var got []string
			for _, e := range s.Validate() {
				got = append(got, e.Field+": "+e.Message)
			}
			if all := strings.Join(got, "\n"); (test.want == "") != (all == "") || !strings.Contains(all, test.want) {
				t.Errorf("got  %s\nwant %s", all, test.want)
			}
		})
	}
}

func TestNetworkIsSaidOnce(t *testing.T) {
	s := job.Spec{Name: "a", Type: job.WorkerTask, Worker: "codex", Instructions: "x", Workspace: job.Workspace{Isolation: job.NoWorkspace},
		Capabilities: []job.Capability{job.CanUseNetwork}, Network: []string{"none"}}
	s.Limits.SetDefaults()
	errs := s.Validate()
	if len(errs) != 1 || errs[0].Field != "network" {
		t.Errorf("got %v, want one mistake in network", errs)
	}
}
