package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// TestGrants sets a grant through the socket, reads it back and lifts it.
func TestGrants(t *testing.T) {
	d := open(t, 0)
	c := client.New(d.socket)
	defer c.Close()
	want := api.Grant{Tenant: "t", Agent: "p", Dead: true, Tokens: 5}
	if err := c.SetGrant(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	var got api.Grants
	if d.ask("GET", "/v1/grants", 200, &got); len(got.Grants) != 1 || got.Grants[0] != want {
		t.Errorf("grants %+v", got)
	}
	for _, body := range []string{`{}`, `{"tenant": "t", "tokens": -1}`, `{"tenant": "t", "cost_usd": -1}`, `{"tenant": "t", "wall": "-1s"}`, `{"tenant": "t", "tokans": 1}`} {
		var p api.Problem
		if d.send("PUT", "/v1/grants", body, 400, &p); p.Detail == "" {
			t.Errorf("%s: %+v", body, p)
		}
	}
	if err := c.SetGrant(t.Context(), api.Grant{Tenant: "t", Agent: "p"}); err != nil {
		t.Fatal(err)
	}
	if d.ask("GET", "/v1/grants", 200, &got); len(got.Grants) != 0 {
		t.Errorf("grants %+v", got)
	}
	var refused *api.Problem
	if err := c.SetGrant(t.Context(), api.Grant{}); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a grant of nobody: %v", err)
	}
}

// TestSubmitForTheDead: who is refused learns what to do about it, and nothing of batches.
func TestSubmitForTheDead(t *testing.T) {
	d := open(t, 0)
	c := client.New(d.socket)
	defer c.Close()
	if err := c.SetGrant(t.Context(), api.Grant{Tenant: "t", Dead: true}); err != nil {
		t.Fatal(err)
	}
	spec := job.Spec{Name: "late", Tenant: "t", Type: job.Tool, Worker: "shell", Instructions: "true", Workspace: job.Workspace{Isolation: job.NoWorkspace}}
	_, err := c.Submit(t.Context(), api.Submission{Source: "test", Jobs: []job.Spec{spec}})
	var refused *api.Problem
	if want := "t is dead and cannot submit jobs; `scheduler grant t --alive` lets it again"; !errors.As(err, &refused) || refused.Name() != "dead_owner" || refused.Detail != want {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestUsage(t *testing.T) {
	d := open(t, 0)
	var u api.Usage
	if d.ask("GET", "/v1/usage?by=tenant&by=day&zone=Europe/Berlin&since=2026-03-01T00:00:00Z", 200, &u); len(u.Accounts) != 0 || u.Total != (api.Account{}) {
		t.Errorf("usage of nothing %+v", u)
	}
	for query, want := range map[string]string{"by=colour": "colour", "since=monday": "monday", "until=x": "until", "zone=Nowhere": "Nowhere"} {
		var p api.Problem
		if d.ask("GET", "/v1/usage?"+query, 400, &p); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %+v", query, p)
		}
	}
}
