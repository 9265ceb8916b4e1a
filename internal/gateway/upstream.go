package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
)

// maxErrorBody bounds the answers that are read whole: errors.
const maxErrorBody = 64 << 10

// buffered is an answer that was read whole and holds no secret, so that it can be passed on later.
type buffered struct {
	status int
	header http.Header
	body   []byte
}

// whole reads an error of a provider.
func whole(res *http.Response, k *key, secret credential.Credential) (*buffered, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxErrorBody {
		body = []byte(fmt.Sprintf(`{"error":{"message":"the provider answered %d with more than %d bytes"}}`, res.StatusCode, maxErrorBody))
	}
	redactor := k.redactor(secret)
	h := &buffered{status: res.StatusCode, header: http.Header{}, body: redactor.Bytes(body)}
	pass(h.header, res.Header, toRun, redactor.String)
	return h, nil
}

// write passes the answer on. With a time, it says when the earliest account is of use again.
func (h *buffered) write(w http.ResponseWriter, until time.Time) {
	for name, values := range h.header {
		w.Header()[name] = values
	}
	if !until.IsZero() {
		w.Header().Set("Retry-After", seconds(time.Until(until)))
		w.Header().Del("Retry-After-Ms")
	}
	w.WriteHeader(h.status)
	_, _ = w.Write(h.body) // a run that left needs no answer
}

// A sent request has either an answer that goes on (res), or one that was read whole.
type sent struct {
	res      *http.Response
	key      *key
	secret   credential.Credential
	buffered *buffered
	until    time.Time // with buffered: when the earliest account is of use again, if that is why
}

// errMaybeSent is the error of a request that the provider may have begun to answer, and may charge.
var errMaybeSent = errors.New("the connection broke before an answer came")

// send asks the provider, with one key after the other as long as they are refused. The run stays with its key.
func (s *Session) send(ctx context.Context, p *provider, e endpoint, in *http.Request, model string, body []byte) (*sent, error) {
	tried := map[*key]bool{}
	var last *sent
	for {
		k := s.choose(p, model, tried)
		if k == nil {
			break
		}
		tried[k] = true
		secret, err := k.source.Secret(ctx, "")
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			s.gateway.config.Log.Warn().Err(err).Str("provider", p.Name).Str("key", k.name).Msg("a key of a model provider cannot be read")
			k.coolDown("", cooldown{until: time.Now().Add(cooldownBroken), answer: k.noKey()})
			continue
		}
		for fresh := true; ; fresh = false {
			res, err := s.roundTrip(ctx, p, e, in, secret, body)
			if err != nil {
				return nil, err
			}
			if res.StatusCode < 300 {
				return &sent{res: res, key: k, secret: secret}, nil
			}
			answer, err := whole(res, k, secret)
			if err != nil {
				return nil, fmt.Errorf("read the error of provider %s: %w", p.Name, err)
			}
			if res.StatusCode < 400 {
				return nil, refuse(http.StatusBadGateway, "redirect", "provider %s redirects, which is not followed: correct its base_url", p.Name)
			}
			last = &sent{key: k, buffered: answer}
			if res.StatusCode == http.StatusUnauthorized {
				if fresh {
					if again, err := k.source.Secret(ctx, secret.Token); err == nil && again.Token != secret.Token {
						secret = again
						continue
					}
				}
				s.gateway.config.Log.Warn().Str("provider", p.Name).Str("key", k.name).Msg("a model provider refuses a key")
				k.coolDown("", cooldown{until: time.Now().Add(cooldownRefused), answer: answer})
				break
			}
			limited, account, until := limitOf(time.Now(), answer)
			if !limited {
				return last, nil
			}
			of := model
			if account {
				of = ""
			}
			s.gateway.config.Log.Info().Str("provider", p.Name).Str("key", k.name).Str("model", model).Time("until", until).Msg("a key of a model provider is used up")
			k.coolDown(of, cooldown{until: until, limited: true, account: account, answer: answer})
			break
		}
	}
	return s.exhausted(p, model, last)
}

// roundTrip sends one request. Nothing of the run's but listed headers goes with it.
func (s *Session) roundTrip(ctx context.Context, p *provider, e endpoint, in *http.Request, secret credential.Credential, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url(p.base, e, in.URL.Query().Get("beta") == "true").String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask provider %s: %w", p.Name, err)
	}
	pass(out.Header, in.Header, toProvider, func(v string) string { return v })
	if out.Header.Get("User-Agent") == "" {
		out.Header["User-Agent"] = nil // not Go's
	}
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Accept-Encoding", "identity")
	for name, value := range p.Headers {
		out.Header.Set(name, value)
	}
	secret.Bearer = secret.Bearer || p.Bearer || e.api != Messages
	secret.Put(out.Header)
	res, err := s.gateway.transport.RoundTrip(out)
	if err == nil {
		return res, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ask provider %s: %w: %w", p.Name, errMaybeSent, context.Cause(ctx))
	}
	if unreachable(err) {
		return nil, refuse(http.StatusBadGateway, "provider_unreachable", "provider %s is not reached: %v", p.Name, err)
	}
	return nil, fmt.Errorf("ask provider %s: %w: %w", p.Name, errMaybeSent, err)
}

// exhausted answers for a provider of which no key is of use: with the refusal of the one that is so again first.
func (s *Session) exhausted(p *provider, model string, last *sent) (*sent, error) {
	k, r := earliest(p.keys, model)
	if k == nil {
		if last != nil {
			return last, nil
		}
		return nil, refuse(http.StatusServiceUnavailable, "no_key", "provider %s has no key of use", p.Name)
	}
	if !r.limited {
		return &sent{key: k, buffered: r.answer}, nil
	}
	if s.config.Limited != nil {
		l := Limited{Provider: p.Name, Model: model, Until: r.until, Account: r.account, Message: messageOf(r.answer.body)}
		s.tell(func() { s.config.Limited(l) })
	}
	return &sent{key: k, buffered: r.answer, until: r.until}, nil
}
