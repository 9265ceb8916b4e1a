package credential

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Key is one way to pay a provider. Exactly one of Value, File, Command and Login is set.
type Key struct {
	Name    string   // for messages, e.g. the name of the variable; never the key
	Value   string   // the key itself
	File    string   // a file that holds it, read at each request
	Command []string // a program that prints it, run once and again after the provider refused what it printed
	Login   *Login   // a subscription
}

// Login is a subscription that a person has logged in to with a vendor's own program. Its file stays where it is, and is
// shared with that program: both refresh it.
type Login struct {
	Kind     LoginKind
	File     string // auth.json of Codex, .credentials.json of Claude Code
	TokenURL string // where it is refreshed; empty: the vendor's
	ClientID string // empty: that of the vendor's program
}

// LoginKind says whose program has made the file of a Login.
type LoginKind string

const (
	CodexLogin  LoginKind = "codex-login"
	ClaudeLogin LoginKind = "claude-login"
)

// Validate returns what is wrong with a key. commands says whether commands are run here.
func (k Key) Validate(commands bool) error {
	ways := 0
	for _, set := range []bool{k.Value != "", k.File != "", len(k.Command) > 0, k.Login != nil} {
		if set {
			ways++
		}
	}
	switch {
	case ways != 1:
		return fmt.Errorf("has %d sources, want exactly one of a value, a file, a command and a login", ways)
	case len(k.Command) > 0 && !commands:
		return errors.New("has a command, and commands are not run here: use a file")
	case k.Login == nil:
		return nil
	case k.Login.Kind != CodexLogin && k.Login.Kind != ClaudeLogin:
		return fmt.Errorf("login: %q is not known, want %s or %s", k.Login.Kind, CodexLogin, ClaudeLogin)
	case k.Login.File == "":
		return errors.New("login: the file must be named, such as ~/.codex/auth.json")
	}
	return nil
}

// Credential is what makes a request an account's.
type Credential struct {
	Token   string
	Bearer  bool   // sent as Authorization; else as x-api-key
	account string // chatgpt-account-id; empty: none
	beta    string // to be added to anthropic-beta; empty: none
	refresh string // what else is secret
}

// Secrets returns all that must not be seen.
func (c Credential) Secrets() []string { return []string{c.Token, c.refresh} }

// Put sets the headers.
func (c Credential) Put(h http.Header) {
	if c.Token == "" {
		return
	}
	if c.Bearer {
		h.Set("Authorization", "Bearer "+c.Token)
	} else {
		h.Set("X-Api-Key", c.Token)
	}
	if c.account != "" {
		h.Set("Chatgpt-Account-Id", c.account)
	}
	if c.beta != "" && !strings.Contains(strings.Join(h["Anthropic-Beta"], ","), c.beta) {
		h.Set("Anthropic-Beta", strings.Join(append(h["Anthropic-Beta"], c.beta), ","))
	}
}

// Conceal takes the token out of a text. It is for answers; errors, which are rare, are looked through by a redactor.
func (c Credential) Conceal(text string) string {
	if len(c.Token) < MinSecret {
		return text
	}
	return strings.ReplaceAll(text, c.Token, Concealed)
}

// MinSecret is the length from which a token is looked for in answers, in bytes; a shorter one would be found in words.
const MinSecret = 8

// Concealed stands in place of a token.
const Concealed = "[redacted]"

// Source gives a key's secret, to several goroutines at once.
type Source interface {
	// Secret returns what is to be sent. stale is a token that was refused: then a fresh one is to be had, if there is.
	Secret(ctx context.Context, stale string) (Credential, error)
}

// Options are what sources need of their owner.
type Options struct {
	RunCommand func(ctx context.Context, command []string) ([]byte, error)
	Transport  http.RoundTripper
	Tasks      *sync.WaitGroup // is waited for when no Secret is under way any more
}

// New returns the source of a key; a zero Key sends nothing.
func New(k Key, o Options) Source {
	switch {
	case k.Login != nil:
		return newLogin(*k.Login, o)
	case k.File != "":
		return fileSource(k.File)
	case len(k.Command) > 0:
		return &commandSource{command: k.Command, run: o.RunCommand, lock: make(chan struct{}, 1)}
	}
	return valueSource(k.Value)
}
