package gateway

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/internal/redact"
)

// key is an account at a provider, with what is known of it.
type key struct {
	name   string
	source credential.Source

	mu        sync.Mutex          // guards what follows
	users     int                 // sessions that stay with it
	cooldowns map[string]cooldown // by model, "" for all of them
}

// cooldown is why a key is not used.
type cooldown struct {
	until   time.Time
	limited bool // by a rate or a usage limit; else the key is refused or cannot be had
	account bool
	answer  *buffered
}

const (
	cooldownRefused = 5 * time.Minute  // of a key that the provider does not accept
	cooldownBroken  = 30 * time.Second // of one that could not be read
	// maxCooldowns bounds what a run that makes up names of models can make a key remember.
	maxCooldowns = 256
)

func newKey(g *Gateway, k credential.Key, name string) *key {
	if k.Name != "" {
		name = k.Name
	}
	source := credential.New(k, credential.Options{RunCommand: g.config.RunCommand, Transport: g.transport, Tasks: &g.tasks})
	return &key{name: name, source: source, cooldowns: map[string]cooldown{}}
}

// redactor takes all secrets of the account out of a text.
func (k *key) redactor(c credential.Credential) *redact.Redactor {
	var values []redact.Value
	for _, text := range c.Secrets() {
		values = append(values, redact.Value{Name: "KEY", Text: text})
	}
	return redact.New(values...)
}

// cooling returns why the key is not used for a model now.
func (k *key) cooling(now time.Time, model string) (cooldown, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var why cooldown
	for _, of := range []string{"", model} {
		r, ok := k.cooldowns[of]
		switch {
		case ok && !now.Before(r.until):
			delete(k.cooldowns, of)
		case ok && r.until.After(why.until):
			why = r
		}
	}
	return why, why.answer != nil
}

func (k *key) coolDown(model string, r cooldown) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.cooldowns) >= maxCooldowns {
		now := time.Now()
		maps.DeleteFunc(k.cooldowns, func(_ string, c cooldown) bool { return !now.Before(c.until) })
	}
	if _, known := k.cooldowns[model]; !known && len(k.cooldowns) >= maxCooldowns {
		model = ""
	}
	k.cooldowns[model] = r
}

func (k *key) use() { k.mu.Lock(); k.users++; k.mu.Unlock() }

func (k *key) leave() { k.mu.Lock(); k.users--; k.mu.Unlock() }

func (k *key) load() int { k.mu.Lock(); defer k.mu.Unlock(); return k.users }

// choose returns the key of a session, which stays the same as long as it is of use, since what a provider has cached belongs
// to an account. Otherwise the one that the fewest sessions use. nil: none is of use.
func (s *Session) choose(p *provider, model string, tried map[*key]bool) *key {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	of := func(k *key) bool {
		_, cooling := k.cooling(now, model)
		return !cooling && !tried[k]
	}
	mine := s.keys[p]
	if mine != nil && of(mine) {
		return mine
	}
	var best *key
	for _, k := range p.keys {
		if of(k) && (best == nil || k.load() < best.load()) {
			best = k
		}
	}
	if best == nil {
		return nil
	}
	if mine != nil {
		mine.leave()
	}
	best.use()
	s.keys[p] = best
	return best
}

// earliest returns the key that is of use again first.
func earliest(keys []*key, model string) (*key, cooldown) {
	now := time.Now()
	var first *key
	var why cooldown
	for _, k := range keys {
		r, cooling := k.cooling(now, model)
		if !cooling {
			continue
		}
		// One that is limited comes back by itself, others only may.
		if first == nil || r.limited && !why.limited || r.limited == why.limited && r.until.Before(why.until) {
			first, why = k, r
		}
	}
	return first, why
}

// noKey is the answer to a run whose key cannot be had. Why is the operator's to know.
func (k *key) noKey() *buffered {
	r := refuse(http.StatusUnauthorized, "no_key", "the gateway cannot read its key %s of the provider: its log says why", k.name)
	return &buffered{status: r.status, header: http.Header{"Content-Type": {"application/json"}}, body: mustJSON(r.body(Chat))}
}

// unreachable reports whether an error came before anything was sent.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
