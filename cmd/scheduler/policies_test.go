package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/policy"
)

// TestOwnPolicy: a policy of one's own is chosen by its name, and is made in place
// of the known ones; another name is still refused.
func TestOwnPolicy(t *testing.T) {
	made := 0
	m := newMain()
	m.policies = policies{"mine": func(c policy.Config) (policy.Policy, error) {
		made++
		c.Name = policy.NameDRF
		return policy.New(c)
	}}
	path := filepath.Join(t.TempDir(), "config.yaml")
	load := func(name string) (config.Config, error) {
		if err := os.WriteFile(path, []byte("policy: {name: "+name+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Load(path, m.configOptions())
	}
	cfg, err := load("mine")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.policies.make(cfg.Policy); err != nil || made != 1 {
		t.Errorf("made %d, %v", made, err)
	}
	if _, err := load("theirs"); err == nil || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("an unknown policy: %v", err)
	}
}
