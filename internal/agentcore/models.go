package agentcore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/internal/gateway"
	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// models is how a run reaches the models of its worker, and how that is charged.
type models struct {
	upstream worker.Upstream
	session  *gateway.Session
	meter    *worker.Meter

	mu      sync.Mutex
	limited *gateway.Limited // the last that the provider said
}

// gateways are those of a core: one for each provider with its key and the prices, since they keep what is known of the
// key.
type gateways struct {
	mu   sync.Mutex
	open map[string]*gateway.Gateway
}

func newGateways() *gateways {
	return &gateways{open: map[string]*gateway.Gateway{}}
}

// of returns the gateway to a provider.
func (g *gateways) of(c gateway.Config) (*gateway.Gateway, error) {
	id, err := json.Marshal([]any{c.Providers, c.Prices})
	if err != nil {
		return nil, fmt.Errorf("open the gateway: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if open := g.open[string(id)]; open != nil {
		return open, nil
	}
	open, err := gateway.New(c)
	if err != nil {
		return nil, err
	}
	g.open[string(id)] = open
	return open, nil
}

func (g *gateways) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, open := range g.open {
		open.Close()
	}
	clear(g.open)
}

// Upstream returns who answers the models of a run, which the core serves it; nil if it serves none, since the program asks
// none or has the login itself, which the configuration then allows. It reads files and asks nobody.
func Upstream(adapter worker.Adapter, settings job.WorkerSettings, loginVisible bool, user func(name string) string) (*worker.Upstream, error) {
	modelled, ok := adapter.(worker.Modelled)
	if !ok {
		return nil, nil
	}
	upstream, err := modelled.Upstream(settings, user)
	var unserved *worker.UnservedError
	switch {
	case errors.As(err, &unserved) && worker.TraitsOf(adapter).NeedsCommand:
		return nil, nil // a program of the user's own that asks no models
	case loginVisible && (err != nil || upstream.Login != ""):
		return nil, nil // with the login
	case errors.As(err, &unserved):
		return nil, &worker.Failure{Class: job.Config, Message: unserved.Error()}
	case err != nil:
		return nil, err
	}
	return &upstream, nil
}

// openModels serves the run the models of its worker, if it has some.
func (c *Confinement) openModels(e *execution, adapter worker.Adapter) error {
	settings := e.settings.Workers[e.submit.Choice.Worker]
	settings.Model = cmp.Or(e.submit.Choice.Model, settings.Model)
	upstream, err := Upstream(adapter, settings, e.settings.Sandbox.LoginVisible, c.user)
	if upstream == nil {
		return err
	}
	users := outside{host: e.session.host, environ: e.core.cfg.Environ} // the gateway outlives the run
	gate, err := e.core.gateways.of(gateway.Config{
		Providers: []gateway.Provider{provider(e.submit.Choice.Worker, settings, *upstream, c.user)}, Prices: e.settings.Prices, Log: e.core.cfg.Log,
		RunCommand: users.ask,
	})
	if err != nil {
		return err
	}
	m := &models{upstream: *upstream, meter: &worker.Meter{}}
	return c.serveModels(m, gate, gateway.RunConfig{
		Permit: e.permit, RatedAs: e.settings.providerOf(e.submit.Choice), HostedTools: c.held.Spec.HasFullNetwork(), Models: allowedModels(settings.Model, settings),
		Charge:   func(x gateway.Charge) { m.meter.Charge(x.Usage) },
		Exceeded: func(over *permit.Stop) { e.overspent(over) },
		Denied:   func(what string) { c.seen.add("gateway: "+what, false) },
		Limited: func(l gateway.Limited) {
			if concerns(l, settings.Model) {
				m.mu.Lock()
				m.limited = &l
				m.mu.Unlock()
				choice := e.submit.Choice
				e.core.circuits.Trip(breaker.Key{Worker: choice.Worker, Model: choice.Model}, l.Until, "rate limit until "+l.Until.UTC().Format(time.RFC3339))
			}
		},
	})
}

// serveModels serves the run models by a gateway.
func (c *Confinement) serveModels(m *models, gate *gateway.Gateway, run gateway.RunConfig) (err error) {
	if m.session, err = gate.Open(run); err != nil {
		return err
	}
	m.meter.Settle = m.session.Close
	c.keys = append(c.keys, redact.Value{Name: "run-key", Text: m.session.Key()})
	c.models, c.endpoint.models = m, m.session
	return nil
}

// provider returns who answers the models of a kind of worker, with the key that pays.
func provider(kind job.WorkerKind, settings job.WorkerSettings, u worker.Upstream, user func(string) string) gateway.Provider {
	p := gateway.Provider{Name: string(kind), BaseURL: u.BaseURL, Bearer: u.Bearer, Headers: u.Headers}
	switch u.API {
	case worker.OpenAIResponses:
		p.APIs = []gateway.API{gateway.Responses}
	case worker.AnthropicMessages:
		p.APIs = []gateway.API{gateway.Messages}
	default:
		p.APIs = []gateway.API{gateway.Chat}
	}
	if p.Keys = configuredKeys(settings, user); len(p.Keys) > 0 {
		return p
	}
	switch {
	case u.LoginFile != "":
		kind := credential.CodexLogin
		if u.Login == "claude" {
			kind = credential.ClaudeLogin
		}
		p.Keys = []credential.Key{{Name: u.LoginFile, Login: &credential.Login{Kind: kind, File: u.LoginFile}}}
	case u.KeyCommand != "":
		p.Keys = []credential.Key{{Name: "the key's command", Command: []string{"/bin/sh", "-c", u.KeyCommand}}}
	case u.KeyEnv != "":
		p.Keys = []credential.Key{{Name: u.KeyEnv, Value: user(u.KeyEnv)}}
	case u.Key != "":
		p.Keys = []credential.Key{{Name: "the key of the user's configuration", Value: u.Key}}
	}
	return p
}

// configuredKeys returns the accounts that the worker's settings name.
func configuredKeys(settings job.WorkerSettings, user func(string) string) []credential.Key {
	var keys []credential.Key
	for _, k := range settings.Keys {
		switch {
		case k.Env != "":
			keys = append(keys, credential.Key{Name: k.Env, Value: user(k.Env)})
		case k.File != "":
			keys = append(keys, credential.Key{Name: k.File, File: k.File})
		default:
			keys = append(keys, credential.Key{Name: k.Command[0], Command: k.Command})
		}
	}
	return slices.DeleteFunc(keys, func(k credential.Key) bool { return k.Value == "" && k.File == "" && len(k.Command) == 0 })
}

// allowedModels returns patterns of the models that the run may use: that of its job, those of the configuration; all if
// neither says.
func allowedModels(model string, settings job.WorkerSettings) []string {
	if len(settings.Models) == 0 || model == "" {
		return settings.Models
	}
	return append([]string{strings.ReplaceAll(model, "*", "")}, settings.Models...)
}

// concerns reports whether a limit is one of the run's model or of all of the account, and not of another model that the
// run's program asks besides, for titles say.
func concerns(l gateway.Limited, model string) bool {
	return l.Account || model == "" || model == l.Model || strings.HasSuffix(model, "/"+l.Model)
}

// explain says of a failed attempt that the provider has refused the account for now, until a time, where its program did
// not find that out or not until when.
func (m *models) explain(o *job.Outcome) {
	if m == nil || o.State != job.RunFailed {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.limited
	if l == nil || !time.Now().Before(l.Until) || o.Class != job.RateLimit && o.Class != job.Server && o.Class != job.Unknown {
		return
	}
	if o.Class != job.RateLimit {
		o.Class, o.Message = job.RateLimit, fmt.Sprintf("the provider takes no request for %s for now: %s", l.Model, l.Message)
	}
	if o.RetryAt == nil || o.RetryAt.Before(l.Until) {
		until := l.Until
		o.RetryAt = &until
	}
}

// close ends the run's requests.
func (m *models) close() {
	if m == nil {
		return
	}
	m.session.Close()
}
