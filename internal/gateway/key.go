package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/redact"
)

// key is an account at a provider, with what is known of it.
type key struct {
	name   string
	source source

	mu    sync.Mutex      // guards what follows
	users int             // sessions that stay with it
	rests map[string]rest // by model, "" for all of them
}

// rest is why a key is not used.
type rest struct {
	until   time.Time
	limited bool // by a rate or a usage limit; else the key is refused or cannot be had
	account bool
	answer  *held
}

const (
	restRefused = 5 * time.Minute  // of a key that the provider does not accept
	restBroken  = 30 * time.Second // of one that could not be read
	// maxRests bounds what a run that makes up names of models can make a key remember.
	maxRests = 256
)

// credential is what makes a request the account's.
type credential struct {
	token   string
	bearer  bool   // as Authorization; else as x-api-key beside it
	account string // chatgpt-account-id; empty: none
	beta    string // to be added to anthropic-beta; empty: none
	others  []string
}

func (c credential) put(h http.Header) {
	if c.token == "" {
		return
	}
	if c.bearer {
		h.Set("Authorization", "Bearer "+c.token)
	} else {
		h.Set("X-Api-Key", c.token)
	}
	if c.account != "" {
		h.Set("Chatgpt-Account-Id", c.account)
	}
	if c.beta != "" && !strings.Contains(strings.Join(h["Anthropic-Beta"], ","), c.beta) {
		h.Set("Anthropic-Beta", strings.Join(append(h["Anthropic-Beta"], c.beta), ","))
	}
}

// conceal takes the token out of a text. It is for answers; errors, which are rare, are looked through by a redactor.
func (c credential) conceal(text string) string {
	if len(c.token) < minSecret {
		return text
	}
	return strings.ReplaceAll(text, c.token, concealed)
}

// source gives a key's secret. stale is the one that was refused; then a fresh one is to be had, if there is.
type source interface {
	secret(ctx context.Context, stale string) (credential, error)
}

func newKey(g *Gateway, k Key, name string) *key {
	made := &key{name: name, rests: map[string]rest{}}
	if k.Name != "" {
		made.name = k.Name
	}
	switch {
	case k.Login != nil:
		made.source = newLogin(*k.Login, g)
	case k.File != "":
		made.source = fileSource(k.File)
	case len(k.Command) > 0:
		made.source = &commandSource{command: k.Command, run: g.config.RunCommand, lock: make(chan struct{}, 1)}
	default:
		made.source = valueSource(k.Value)
	}
	return made
}

func (k *key) secret(ctx context.Context, stale string) (credential, error) {
	c, err := k.source.secret(ctx, stale)
	if err != nil {
		return credential{}, fmt.Errorf("key %s: %w", k.name, err)
	}
	return c, nil
}

// redactor takes all secrets of the account out of a text.
func (k *key) redactor(c credential) *redact.Redactor {
	values := []redact.Value{{Name: "KEY", Text: c.token}}
	for _, o := range c.others {
		values = append(values, redact.Value{Name: "KEY", Text: o})
	}
	return redact.New(values...)
}

// resting returns why the key is not used for a model now.
func (k *key) resting(now time.Time, model string) (rest, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var why rest
	for _, of := range []string{"", model} {
		r, ok := k.rests[of]
		switch {
		case ok && !now.Before(r.until):
			delete(k.rests, of)
		case ok && r.until.After(why.until):
			why = r
		}
	}
	return why, why.answer != nil
}

func (k *key) rest(model string, r rest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.rests[model]; !known && len(k.rests) >= maxRests {
		model = ""
	}
	k.rests[model] = r
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
		_, resting := k.resting(now, model)
		return !resting && !tried[k]
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
func earliest(keys []*key, model string) (*key, rest) {
	now := time.Now()
	var first *key
	var why rest
	for _, k := range keys {
		r, resting := k.resting(now, model)
		if !resting {
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
func (k *key) noKey() *held {
	r := refuse(http.StatusUnauthorized, "no_key", "the gateway cannot read its key %s of the provider: its log says why", k.name)
	return &held{status: r.status, header: http.Header{"Content-Type": {"application/json"}}, body: mustJSON(r.body(Chat))}
}

// unreachable reports whether an error came before anything was sent.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

type valueSource string

func (v valueSource) secret(context.Context, string) (credential, error) {
	return credential{token: string(v)}, nil
}

// maxKeyFile bounds a file or an output that holds a key, in bytes.
const maxKeyFile = 64 << 10

// fileSource reads the file each time, so that a changed key counts at once.
type fileSource string

func (f fileSource) secret(context.Context, string) (credential, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return credential{}, fmt.Errorf("read the key: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return credential{}, fmt.Errorf("read the key: %w", err)
	}
	return tokenOf(text, string(f))
}

func tokenOf(text []byte, from string) (credential, error) {
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, "\r\n") || len(text) >= maxKeyFile {
		return credential{}, fmt.Errorf("%s must give one line, the key", from)
	}
	return credential{token: token}, nil
}

// commandTime is how long a command may take to print a key: it may ask a person.
const commandTime = time.Minute

// commandSource keeps what the command printed until a provider refuses it.
type commandSource struct {
	command []string
	run     func(context.Context, []string) ([]byte, error)
	lock    chan struct{} // capacity 1: who has put into it holds what follows
	have    credential
}

func (c *commandSource) secret(ctx context.Context, stale string) (credential, error) {
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return credential{}, context.Cause(ctx)
	}
	if c.have.token != "" && c.have.token != stale {
		return c.have, nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := c.run(ctx, c.command)
	if err != nil {
		return credential{}, fmt.Errorf("run %s: %w", c.command[0], err)
	}
	got, err := tokenOf(out, c.command[0])
	if err == nil {
		c.have = got
	}
	return got, err
}
