package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
)

// Config is what a Gateway is made of.
type Config struct {
	// Providers are asked in this order: the first that speaks a request's API and has its model gets it.
	Providers []Provider
	// Models are bounds by exact name. Of a model that is not listed, DefaultMaxOutput and DefaultContext are taken.
	Models map[string]Model
	// Prices are by exact name of the model. Where money is limited, a model without a price is refused.
	Prices map[string]job.Price
	// MaxBody is the most bytes of a request; 0: DefaultMaxBody.
	MaxBody int64
	// RunCommand runs the command of a key and returns its standard output. It is called with a context that ends after
	// commandTime. nil: keys by command are refused.
	RunCommand func(ctx context.Context, command []string) ([]byte, error)
	// Transport carries requests to providers and, of logins, to the place where they are refreshed. It must not follow
	// redirects nor decompress. nil: one of the gateway's own, with HTTP proxies as the environment says.
	Transport http.RoundTripper
	// Log is told what runs are not: why a key cannot be had, which one is used up.
	Log zerolog.Logger
}

const (
	DefaultMaxOutput = 128_000   // tokens
	DefaultContext   = 1_000_000 // tokens
	DefaultMaxBody   = 64 << 20  // bytes
)

// Model bounds what one request can cost. A field that is 0 is the default.
type Model struct {
	MaxOutput int64 // tokens
	Context   int64 // tokens of input at most
}

// Provider is who answers.
type Provider struct {
	Name string
	APIs []API
	// BaseURL is what a client of the provider is given, e.g. https://api.openai.com/v1 or https://api.anthropic.com. For
	// the Messages API, /v1 is put in if it does not end so.
	BaseURL string
	// Keys are accounts: a run stays with one until it is out of use. None: the provider wants none.
	Keys []credential.Key
	// Bearer sends keys as Authorization: Bearer to the Messages API, too, and not as x-api-key.
	Bearer bool
	// Headers go with each request besides. They may hold secrets, but the provider must not repeat them.
	Headers map[string]string
	// Models are patterns of the models that it has; empty: all.
	Models []string
	// OutputField is the member of chat completions that limits the output. Empty: max_completion_tokens of OpenAI's own
	// host, max_tokens elsewhere. NoOutputLimit says that none may be written: a request without a limit stays so.
	OutputField   string
	NoOutputLimit bool
}

// Validate returns all mistakes, each with the field, its value and what would be right.
func (c *Config) Validate() error {
	var errs []error
	names := map[string]bool{}
	for i := range c.Providers {
		p := &c.Providers[i]
		at := fmt.Sprintf("providers[%d]", i)
		if p.Name == "" || names[p.Name] {
			errs = append(errs, fmt.Errorf("%s.name: %q is not allowed, want a name that no other provider has", at, p.Name))
		}
		names[p.Name] = true
		if len(p.APIs) == 0 {
			errs = append(errs, fmt.Errorf("%s.apis: must not be empty, want some of responses, chat, messages", at))
		}
		for _, a := range p.APIs {
			if a != Responses && a != Chat && a != Messages {
				errs = append(errs, fmt.Errorf("%s.apis: %q is not known, want responses, chat or messages", at, a))
			}
		}
		if _, err := baseURL(p.BaseURL); err != nil {
			errs = append(errs, fmt.Errorf("%s.base_url: %w", at, err))
		}
		for j, k := range p.Keys {
			if err := k.Validate(c.RunCommand != nil); err != nil {
				errs = append(errs, fmt.Errorf("%s.keys[%d]: %w", at, j, err))
			}
		}
	}
	return errors.Join(errs...)
}

// baseURL returns a provider's base URL. What it leads to is fixed: no user, no query.
func baseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not allowed, want a URL such as https://api.openai.com/v1, without user, ? and #", text)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

// url returns where the provider is asked. Of a query nothing is passed on but Anthropic's beta=true.
func (p *Provider) url(base *url.URL, e endpoint, beta bool) *url.URL {
	u := *base
	if e.api == Messages && beta {
		u.RawQuery = "beta=true"
	}
	if e.api == Messages && !strings.HasSuffix(u.Path, "/v1") {
		u.Path += "/v1"
	}
	u.Path += e.path
	return &u
}

func (p *Provider) serves(a API, model string) bool {
	return slices.Contains(p.APIs, a) && (len(p.Models) == 0 || matches(p.Models, model))
}

// outputField names the member that limits a request's output; empty: none may be written.
func (p *Provider) outputField(a API, host string) string {
	switch {
	case p.NoOutputLimit:
		return ""
	case a == Messages:
		return "max_tokens"
	case a == Responses:
		return "max_output_tokens"
	case p.OutputField != "":
		return p.OutputField
	case host == "api.openai.com":
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// matches reports whether a name fits one of the patterns, in which * stands for any text.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

func match(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return name == pattern
	}
	name, ok := strings.CutPrefix(name, first)
	if !ok {
		return false
	}
	for {
		next, more, wild := strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, next)
		}
		i := strings.Index(name, next)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(next):], more
	}
}

// bounds returns what a request to a model can use at most.
func (c *Config) bounds(model string) Model {
	m := c.Models[model]
	if m.MaxOutput <= 0 {
		m.MaxOutput = DefaultMaxOutput
	}
	if m.Context <= 0 {
		m.Context = DefaultContext
	}
	return m
}
