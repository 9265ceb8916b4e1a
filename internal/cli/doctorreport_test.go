package cli

import (
	"bytes"
	"io"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
)

const wantAdvice = `# 3 of the latest 5 jobs in report mode wanted more than level standard allows.
# Nothing was recorded of 1 of them. Nothing was recorded: no kernel.
# For the configuration, in place of its sandbox.mode, sandbox.read and sandbox.write. Leave out what no run should have.
sandbox:
  level: standard
  read:
    - "/srv/a folder: \"#1\"\n" # 1 job
    - /srv/data # 2 jobs
    - /srv/granted # 1 job
  write:
    - /srv/out # 2 jobs
# Settings below a home. A run has a home of its own, so a grant is only of use to a program that names the path in full.
#   read /home/u/.gitconfig # 1 job
# Too broad to be granted: name the folder below that is needed. A run's temporary folder is in TMPDIR.
#   write /tmp # 1 job
# Hidden from every run. Logins of models and git stay outside and are used by the scheduler; see secrets and git of the job file for others.
#   read /home/u/.ssh # 1 job
# Refused whatever is granted; most programs do without.
#   socket AF_INET SOCK_DGRAM # 1 job
---
# For the job "3" (1 job). Write the names of hosts in place of their addresses, or a preset: crates, github, go, npm, pypi.
network:
  - "127.0.0.1:5432"
---
# For the job build (2 jobs). Write the names of hosts in place of their addresses, or a preset: crates, github, go, npm, pypi.
network:
  - "192.0.2.1:443"
  - "[2001:db8::1]:443"
  - github
`

// TestGrantAdvice: what jobs wanted as YAML that a configuration and job files can have.
func TestGrantAdvice(t *testing.T) {
	a := adviser{wishes: map[job.Refusal]map[string]bool{}, hosts: map[string]*asked{}}
	attempts := func(h job.Holding) []job.Attempt {
		return []job.Attempt{{Outcome: &job.Outcome{Sandbox: &h}}}
	}
	told := job.Holding{Level: job.SandboxStandard, Report: true, Denied: 1}
	for _, j := range []struct {
		id, name string
		holding  job.Holding
		network  []string
		refusals []job.Refusal
	}{
		{"1", "build", told, nil, []job.Refusal{
			{Act: "read", Detail: "/srv/data/models"}, {Act: "read", Detail: "/srv/out"}, {Act: "write", Detail: "/srv/out"},
			{Act: "connect", Detail: "192.0.2.1:443"}, {Act: "connect", Detail: "[2001:db8::1]:443"}, {Act: "socket", Detail: "AF_INET SOCK_DGRAM"},
			{Act: "read", Detail: "/home/u/.gitconfig"}, {Act: "read", Detail: "/home/u/.ssh", Hidden: true}, {Act: "write", Detail: "/tmp", Broad: true},
		}},
		{"2", "build", told, []string{"github"}, []job.Refusal{{Act: "read", Detail: "/srv/data"}, {Act: "connect", Detail: "192.0.2.1:443"}}},
		{"3", "", told, []string{"none"}, []job.Refusal{
			{Act: "read", Detail: "/srv/a folder: \"#1\"\n"}, {Act: "write", Detail: "/srv/out/deep"}, {Act: "read", Detail: "/srv/granted/x"}, {Act: "connect", Detail: "127.0.0.1:5432"},
		}},
		{"4", "content", job.Holding{Level: job.SandboxStandard, Report: true}, nil, nil},
		{"5", "held", job.Holding{Level: job.SandboxStandard, Denied: 3}, nil, []job.Refusal{{Act: "read", Detail: "/never"}}},
		{"6", "blind", job.Holding{Level: job.SandboxStandard, Report: true, Unrecorded: true, NotHeld: []string{"Nothing held.", "Nothing was recorded: no kernel."}}, nil, nil},
	} {
		if !a.looksAt(attempts(j.holding)) {
			continue
		}
		for _, r := range j.refusals {
			a.add(&job.Spec{Name: job.Name(j.name), Network: j.network}, j.id, r)
		}
	}
	if a.Wanting == 0 {
		t.Fatal("no job wanted anything")
	}
	var text bytes.Buffer
	advice := a.advice(&config.Sandbox{Read: []string{"/srv/granted"}})
	if err := advice.print(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); got != wantAdvice {
		t.Errorf("printed:\n%s\nwant:\n%s", got, wantAdvice)
	}

	in := yaml.NewDecoder(bytes.NewReader(text.Bytes()), yaml.Strict())
	var cfg struct {
		Sandbox struct {
			Level       string
			Read, Write []string
		}
	}
	if err := in.Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	if got := cfg.Sandbox; len(got.Read) != 3 || got.Read[0] != "/srv/a folder: \"#1\"\n" || len(got.Write) != 1 {
		t.Errorf("for the configuration: %+v", got)
	}
	hosts := 0
	for {
		var of struct{ Network []string }
		err := in.Decode(&of)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		hosts += len(of.Network)
		s := job.Spec{Instructions: "x", Worker: "shell", Network: of.Network}
		for _, e := range s.Validate() {
			if len(e.Field) >= 7 && e.Field[:7] == "network" {
				t.Errorf("%v: %v", of.Network, e)
			}
		}
	}
	if hosts != 4 {
		t.Errorf("%d hosts, want 4", hosts)
	}
}
