package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/shell"
)

// TestOwnPolicy: a policy of one's own is chosen by its name, and is made in place
// of the known ones; another name is still refused.
func TestOwnPolicy(t *testing.T) {
	made := 0
	m := newMain()
	m.prog.policies = policies{"mine": func(c policy.Config) (policy.Policy, error) {
		made++
		c.Name = policy.NameDRF
		return policy.New(c)
	}}
	path := filepath.Join(t.TempDir(), "config.yaml")
	load := func(name string) (config.Config, error) {
		if err := os.WriteFile(path, []byte("policy: {name: "+name+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Load(path, m.prog.configOptions())
	}
	cfg, err := load("mine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.prog.policies.make(cfg.Policy); err != nil || made != 1 {
		t.Errorf("made %d, %v", made, err)
	}
	if _, err := load("theirs"); err == nil || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("an unknown policy: %v", err)
	}
}

// TestOptions: what is added is there beside what is built in, or in its place, and
// what cannot be meant is refused.
func TestOptions(t *testing.T) {
	lone := func(policy.Config) (policy.Policy, error) { return nil, nil }
	m, err := newProgram(Options{
		Adapters: map[string]worker.Adapter{"mine": shell.Adapter{}, "codex": shell.Adapter{}},
		Policies: map[string]func(policy.Config) (policy.Policy, error){"mine": lone},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !worker.TraitsOf(m.prog.adapters["mine"]).Script || !worker.TraitsOf(m.prog.adapters["codex"]).Script || m.prog.adapters["claude"] == nil {
		t.Errorf("adapters %v", m.prog.adapters)
	}
	if names := m.prog.policyNames(); !slices.Contains(names, "mine") || !slices.Contains(names, policy.NameDRF) {
		t.Errorf("policies %q", names)
	}
	if core, err := m.prog.coreProgram(); err != nil || len(core) != 2 || core[1] != coreCommand {
		t.Errorf("the core is %q, %v, want this program", core, err)
	}
	for name, o := range map[string]Options{
		"a name of no worker": {Adapters: map[string]worker.Adapter{"No Name": shell.Adapter{}}},
		"no adapter":          {Adapters: map[string]worker.Adapter{"mine": nil}},
		"no name":             {Policies: map[string]func(policy.Config) (policy.Policy, error){"": lone}},
		"no constructor":      {Policies: map[string]func(policy.Config) (policy.Policy, error){"mine": nil}},
	} {
		if _, err := newProgram(o); err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
