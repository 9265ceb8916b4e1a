package server

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

func (a accounts) creditRoutes(r *router) {
	get(r, route{id: "list-credits", method: "GET", path: "/v1/credits", role: read, tag: "accounts", about: "List the credits that tenants have left."},
		func(ctx context.Context, _ *struct{}) (api.Balances, error) { return BalancesOf(ctx, a.store) })
	get(r, route{id: "list-credit-history", method: "GET", path: "/v1/credits/history", role: read, answered: fromStore, tag: "accounts",
		about: "Return the history of a tenant's credits.\nWhat a run took is forgotten with jobs of its age."}, a.creditHistory)
	post(r, route{id: "top-up-credits", method: "POST", path: "/v1/credits", role: operate, tag: "accounts",
		about: "Add credits to a tenant's balance, or take some back."}, a.topUp)
	post(r, route{id: "drop-credits", method: "POST", path: "/v1/credits/drop", role: operate, tag: "accounts",
		about: "End a tenant's balance.\nWhat is left is lost, and its runs cost nothing from then on."}, a.dropBalance)
}

// BalancesOf returns the balances of a store, and the prices.
func BalancesOf(ctx context.Context, l queue.Ledger) (api.Balances, error) {
	list, err := l.Balances(ctx)
	p := l.Prices()
	return api.Balances{Balances: each(list, balanceOf), Run: p.Run, Agents: p.Agents}, err
}

type creditQuery struct {
	Tenant job.Tenant `query:"tenant" required:"true" doc:"whose"`
	Before string     `query:"before" doc:"those before this one; absent: from the newest on"`
	Limit  int        `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"at most so many"`
}

func (a accounts) creditHistory(ctx context.Context, q *creditQuery) (api.Credits, error) {
	return CreditsOf(ctx, a.store, q.Tenant, q.Before, q.Limit)
}

// CreditsOf returns a page of the history of a tenant's balance.
func CreditsOf(ctx context.Context, l queue.Ledger, t job.Tenant, before string, limit int) (api.Credits, error) {
	list, err := l.Credits(ctx, t, before, limit+1)
	if err != nil {
		return api.Credits{}, err
	}
	var next string
	if len(list) > limit {
		list = list[:limit]
		next = list[limit-1].ID
	}
	return api.Credits{Credits: each(list, creditOf), Next: next}, nil
}

type topUpHeaders struct {
	Key string `header:"Idempotency-Key" doc:"1 to 255 printable ASCII characters; of the requests of a sender with one key the first one counts"`
}

func (a accounts) topUp(ctx context.Context, h *topUpHeaders, in *api.TopUp) (api.Balance, error) {
	op := queue.TopUp{Tenant: in.Tenant, Credits: in.Credits, By: in.By, Now: time.Now()}
	if err := op.Validate(); err != nil {
		return api.Balance{}, badField("body", "%v", err)
	}
	if err := checkKey(h.Key); err != nil {
		return api.Balance{}, err
	}
	if h.Key != "" {
		sum := senderKey(ctx, a.principal, "credits", h.Key)
		op.Key = hex.EncodeToString(sum[:])
	}
	err := a.store.Apply(ctx, op)
	if errors.Is(err, queue.ErrExists) {
		return api.Balance{}, newProblem("idempotency_key_reused", http.StatusUnprocessableEntity,
			"this Idempotency-Key was used for other credits: want a key of its own for each request").
			about("header.Idempotency-Key", "was used for other credits", nil)
	}
	if err != nil {
		if refused := errors.Unwrap(err); errors.Is(refused, queue.ErrIllegalTransition) {
			err = refused
		}
		return api.Balance{}, err
	}
	a.wake()
	return a.balance(ctx, in.Tenant)
}

func (a accounts) dropBalance(ctx context.Context, _ *struct{}, in *api.DropBalance) (api.Balance, error) {
	before, err := a.balance(ctx, in.Tenant)
	if err != nil {
		return before, err
	}
	err = a.store.Apply(ctx, queue.DropBalance{Tenant: in.Tenant, By: in.By, Now: time.Now()})
	a.wake()
	return before, err
}

// balance returns a tenant's balance, empty if it has none.
func (a accounts) balance(ctx context.Context, t job.Tenant) (api.Balance, error) {
	list, err := a.store.Balances(ctx)
	for i := range list {
		if list[i].Tenant == t {
			return balanceOf(&list[i]), err
		}
	}
	return api.Balance{Tenant: t}, err
}
