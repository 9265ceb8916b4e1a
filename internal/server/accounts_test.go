package server_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/server"
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
	if d.ask("GET", "/v1/grants", 200, &got); len(got.Grants) != 1 || got.Grants[0].Grant != want {
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

// TestCreditsOnce: of requests with one key the first one counts, for each sender by itself.
func TestCreditsOnce(t *testing.T) {
	who := "anna"
	d := open(t, 0, func(o *server.Options) { o.Principal = principal(&who) })
	c := client.New(d.socket)
	defer c.Close()
	for i, x := range []struct {
		who, key   string
		add, after int64
	}{
		{"anna", "k", 7, 7}, {"anna", "k", 7, 7}, {"anna", "l", 7, 14}, {"bert", "k", 1, 15}, {"bert", "k", 1, 15}, {"anna", "k", 7, 15},
	} {
		who = x.who
		if b, err := c.TopUp(t.Context(), api.TopUp{Tenant: "t", Credits: x.add, By: "x"}, client.WithKey(x.key)); err != nil || b.Left != x.after {
			t.Errorf("request %d: %d are left (%v), want %d", i, b.Left, err, x.after)
		}
	}
	var refused *api.Problem
	for _, other := range []api.TopUp{{Tenant: "t", Credits: 8}, {Tenant: "u", Credits: 7}} {
		if _, err := c.TopUp(t.Context(), other, client.WithKey("k")); !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity || refused.Name() != "idempotency_key_reused" {
			t.Errorf("%+v with a key that was used: %v", other, err)
		}
	}
	if _, err := c.TopUp(t.Context(), api.TopUp{Tenant: "t", Credits: 1}, client.WithKey(strings.Repeat("k", 256))); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a key that is too long: %v", err)
	}
}

// TestCredits adds credits through the socket, reads them back and drops them.
func TestCredits(t *testing.T) {
	d := open(t, 0)
	c := client.New(d.socket)
	defer c.Close()
	for _, n := range []int64{7, -3, 1} {
		if _, err := c.TopUp(t.Context(), api.TopUp{Tenant: "t", Credits: n, By: "anna"}); err != nil {
			t.Fatal(err)
		}
	}
	var refused *api.Problem
	if _, err := c.TopUp(t.Context(), api.TopUp{Tenant: "t", Credits: -6}); !errors.As(err, &refused) || refused.Status != http.StatusConflict || refused.Detail != "credits of tenant t: 5 left, 6 cannot be taken back" {
		t.Errorf("more was taken back than there is: %v", err)
	}
	if _, err := c.TopUp(t.Context(), api.TopUp{Tenant: "t"}); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a top-up of nothing: %v", err)
	}
	list, err := c.Credits(t.Context())
	if want := (api.Balance{Tenant: "t", Left: 5, Added: 5}); err != nil || list.Run != 1 || len(list.Balances) != 1 || list.Balances[0] != want {
		t.Errorf("balances %+v (%v), want %+v", list, err, want)
	}
	var got []int64
	for before := ""; ; {
		page, err := c.CreditHistory(t.Context(), "t", before, 2)
		if err != nil || len(page.Credits) == 0 {
			t.Fatalf("%+v (%v)", page, err)
		}
		for _, x := range page.Credits {
			got = append(got, x.Credits)
		}
		if before = page.Next; before == "" {
			break
		}
	}
	if !slices.Equal(got, []int64{1, -3, 7}) {
		t.Errorf("the history has %v, want the newest first", got)
	}
	if was, err := c.DropBalance(t.Context(), api.DropBalance{Tenant: "t"}); err != nil || was.Left != 5 {
		t.Errorf("dropped %+v (%v)", was, err)
	}
	if _, err := c.DropBalance(t.Context(), api.DropBalance{Tenant: "t"}); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("dropped twice: %v", err)
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
