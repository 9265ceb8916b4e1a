package config_test

import (
	"testing"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/job"
)

func TestGrants(t *testing.T) {
	c := config.Config{
		Sandbox: config.Sandbox{Level: job.SandboxStandard, Read: []string{"/srv/models"}, Write: []string{"/srv/out"}},
		Secrets: map[string]config.Secret{"NPM_TOKEN": {Env: "NPM_TOKEN"}, "DEPLOY_KEY": {File: "/etc/key", Tenants: []job.Tenant{"website"}}},
	}
	lower := c
	lower.Sandbox.Least = job.SandboxNone
	for _, test := range []struct {
		name   string
		config config.Config
		job    job.Spec
		want   string // the field and the message, of the only mistake; "" for none
	}{
		{"nothing", c, job.Spec{}, ""},
		{"more", c, job.Spec{Sandbox: job.Sandbox{Level: job.SandboxStrict}}, ""},
		{"the same", c, job.Spec{Sandbox: job.Sandbox{Level: job.SandboxStandard}}, ""},
		{"less", c, job.Spec{Sandbox: job.Sandbox{Level: job.SandboxNone}},
			"sandbox.level: none is less than this host allows, which is standard; ask for that or more, or have sandbox.least lowered in the configuration"},
		{"less, allowed", lower, job.Spec{Sandbox: job.Sandbox{Level: job.SandboxNone}}, ""},
		{"read below", c, job.Spec{Sandbox: job.Sandbox{Read: []string{"/srv/models/small"}}}, ""},
		{"read what may be written", c, job.Spec{Sandbox: job.Sandbox{Read: []string{"/srv/out"}}}, ""},
		{"read beside", c, job.Spec{Sandbox: job.Sandbox{Read: []string{"/srv/models2"}}},
			"sandbox.read[0]: /srv/models2 is not within what sandbox.read of the configuration allows; have it added there"},
		{"write what may be read", c, job.Spec{Sandbox: job.Sandbox{Write: []string{"/srv/models"}}},
			"sandbox.write[0]: /srv/models is not within what sandbox.write of the configuration allows; have it added there"},
		{"hide anything", c, job.Spec{Sandbox: job.Sandbox{Hide: []string{"/usr"}}}, ""},
		{"secret", c, job.Spec{Secrets: []string{"NPM_TOKEN"}}, ""},
		{"misspelt secret", c, job.Spec{Secrets: []string{"NPM_TOKEM"}}, `secrets[0]: "NPM_TOKEM" is no secret of the configuration; did you mean NPM_TOKEN?`},
		{"secret of another host", c, job.Spec{Secrets: []string{"NPM_TOKEM", "DEPLOY_KEY"}, Node: job.Node{Name: "a"}}, ""},
		{"own secret", c, job.Spec{Tenant: "website", Secrets: []string{"DEPLOY_KEY"}}, ""},
		{"another's secret", c, job.Spec{Secrets: []string{"DEPLOY_KEY"}},
			`secrets[0]: "DEPLOY_KEY" is not given to jobs of tenant default; have it added to secrets.DEPLOY_KEY.tenants of the configuration`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			for _, e := range test.config.Grants(&test.job) {
				got += e.Field + ": " + e.Message
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestReports(t *testing.T) {
	for _, test := range []struct {
		name     string
		sandbox  config.Sandbox
		enforces bool // where nothing is said
		want     bool
	}{
		{"nothing said, from before", config.Sandbox{}, false, true},
		{"nothing said", config.Sandbox{}, true, false},
		{"something said, from before", config.Sandbox{Read: []string{"/srv"}}, false, false},
		{"enforce, from before", config.Sandbox{Mode: config.SandboxEnforce}, false, false},
		{"report", config.Sandbox{Mode: config.SandboxReport}, true, true},
		{"report at a level", config.Sandbox{Mode: config.SandboxReport, Level: job.SandboxStrict}, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.sandbox.Reports(test.enforces); got != test.want {
				t.Errorf("reports %v, want %v", got, test.want)
			}
		})
	}
}

func TestLevels(t *testing.T) {
	for _, test := range []struct {
		name         string
		sandbox      config.Sandbox
		level, least job.SandboxLevel
	}{
		{"nothing said", config.Sandbox{}, job.SandboxStrongest, job.SandboxStandard},
		{"strongest", config.Sandbox{Level: job.SandboxStrongest}, job.SandboxStrongest, job.SandboxStandard},
		{"a level", config.Sandbox{Level: job.SandboxStrict}, job.SandboxStrict, job.SandboxStrict},
		{"consent for all", config.Sandbox{Level: job.SandboxNone}, job.SandboxNone, job.SandboxNone},
		{"consent for those that ask", config.Sandbox{Least: job.SandboxNone}, job.SandboxStrongest, job.SandboxNone},
		{"no less than strict", config.Sandbox{Least: job.SandboxStrict}, job.SandboxStrongest, job.SandboxStrict},
		{"nothing is held yet", config.Sandbox{Mode: config.SandboxReport, Level: job.SandboxStandard}, job.SandboxStandard, job.SandboxNone},
	} {
		t.Run(test.name, func(t *testing.T) {
			if level, least := test.sandbox.Levels(); level != test.level || least != test.least {
				t.Errorf("level %s and least %s, want %s and %s", level, least, test.level, test.least)
			}
		})
	}
}
