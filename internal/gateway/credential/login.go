package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// refreshBefore is how long before its end a token is renewed.
	refreshBefore = 5 * time.Minute
	// refreshTime bounds a refresh. It is not cut with the request that wanted it: a refresh token that was spent for a
	// lost answer is gone.
	refreshTime = time.Minute
)

// login is the source of a subscription's tokens.
type login struct {
	Login
	transport http.RoundTripper
	tasks     *sync.WaitGroup // of the owner, who waits for refreshes

	mu     sync.Mutex
	flight *refresh // under way; nil: none
}

// refresh is one exchange of the refresh token. token and err are set when done is closed.
type refresh struct {
	done  chan struct{}
	token tokens
	err   error
}

func newLogin(l Login, o Options) *login {
	url, client := "https://auth.openai.com/oauth/token", "app_EMoamEEZ73f0CkXaXp7hrann" // openai/codex, codex-rs/login
	if l.Kind == ClaudeLogin {
		url, client = "https://console.anthropic.com/v1/oauth/token", "9d1c250a-e61b-44d9-88ed-5944d1962f5e" // of Claude Code
	}
	if l.TokenURL == "" {
		l.TokenURL = url
	}
	if l.ClientID == "" {
		l.ClientID = client
	}
	return &login{Login: l, transport: o.Transport, tasks: o.Tasks}
}

func (l *login) Secret(ctx context.Context, stale string) (Credential, error) {
	have, err := readTokens(l.Kind, l.File)
	if err != nil {
		return Credential{}, err
	}
	if have.access != stale && !have.ends(time.Now().Add(refreshBefore)) {
		return l.credential(have), nil
	}
	f := l.renew(have, stale)
	select {
	case <-f.done:
	case <-ctx.Done():
		return Credential{}, context.Cause(ctx)
	}
	switch {
	case f.err == nil && f.token.access != stale:
		return l.credential(f.token), nil
	case have.access != stale && !have.ends(time.Now()):
		return l.credential(have), nil // it is good for a while
	case f.err == nil:
		return Credential{}, fmt.Errorf("%s: the provider refuses its token and has given no other", l.File)
	}
	return Credential{}, f.err
}

func (l *login) credential(t tokens) Credential {
	c := Credential{Token: t.access, Bearer: true, account: t.account, refresh: t.refresh}
	if l.Kind == ClaudeLogin {
		c.beta = "oauth-2025-04-20" // the API takes tokens of logins only with it
	}
	return c
}

// renew returns the refresh that is under way, or begins one.
func (l *login) renew(have tokens, stale string) *refresh {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flight != nil {
		return l.flight
	}
	f := &refresh{done: make(chan struct{})}
	l.flight = f
	l.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), refreshTime)
		defer cancel()
		if f.token, f.err = l.exchange(ctx, have, stale); f.err != nil {
			f.err = fmt.Errorf("refresh the login in %s: %w", l.File, f.err)
		}
		l.mu.Lock()
		l.flight = nil
		l.mu.Unlock()
		close(f.done)
	})
	return f
}

// exchange spends the refresh token, under the lock of the file, and writes down what it gets. Somebody else may have done so
// since the file was read: another core, or the vendor's own program, which does not know the lock.
func (l *login) exchange(ctx context.Context, before tokens, stale string) (tokens, error) {
	unlock, err := lockFile(ctx, l.File)
	if err != nil {
		return tokens{}, err
	}
	defer unlock()
	have, err := readTokens(l.Kind, l.File)
	if err != nil {
		return tokens{}, err
	}
	if have.access != stale && have.access != before.access && !have.ends(time.Now().Add(refreshBefore)) {
		return have, nil
	}
	file, err := replaceFile(l.File) // before the token is spent: what comes must have a place
	if err != nil {
		return tokens{}, err
	}
	defer file.discard()
	got, err := l.post(ctx, have)
	if err != nil {
		if now, again := readTokens(l.Kind, l.File); again == nil && now.refresh != have.refresh && now.access != stale {
			return now, nil
		}
		return tokens{}, err
	}
	text, err := have.with(got, time.Now())
	if err != nil {
		return tokens{}, err
	}
	if err := file.commit(text); err != nil {
		return tokens{}, err
	}
	return got, nil
}

// post is RFC 6749, section 6, with the parameters as JSON, as both vendors' programs send them.
func (l *login) post(ctx context.Context, have tokens) (tokens, error) {
	if have.refresh == "" {
		return tokens{}, fmt.Errorf("it has no refresh token: %s", l.again())
	}
	parameters := map[string]string{"grant_type": "refresh_token", "refresh_token": have.refresh, "client_id": l.ClientID}
	if l.Kind == CodexLogin {
		parameters["scope"] = "openid profile email"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.TokenURL, bytes.NewReader(mustJSON(parameters)))
	if err != nil {
		return tokens{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	res, err := l.transport.RoundTrip(req)
	if err != nil {
		return tokens{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeyFile))
	if err != nil {
		return tokens{}, err
	}
	var answer struct {
		Access    string `json:"access_token"`
		Refresh   string `json:"refresh_token"`
		ID        string `json:"id_token"`
		ExpiresIn int64  `json:"expires_in"`
	}
	err = json.Unmarshal(body, &answer)
	if res.StatusCode != http.StatusOK {
		return tokens{}, fmt.Errorf("%s answered %d: if that stays, %s", req.URL.Host, res.StatusCode, l.again())
	}
	if err != nil || answer.Access == "" {
		return tokens{}, fmt.Errorf("%s answered without a token", req.URL.Host)
	}
	got := have
	got.access, got.expires = answer.Access, expiryOf(answer.Access)
	if answer.ExpiresIn > 0 {
		got.expires = time.Now().Add(time.Duration(min(answer.ExpiresIn, 1<<31)) * time.Second)
	}
	if answer.Refresh != "" {
		got.refresh = answer.Refresh
	}
	if answer.ID != "" {
		got.id = answer.ID
	}
	return got, nil
}

func (l *login) again() string {
	if l.Kind == ClaudeLogin {
		return `log in again with "claude /login"`
	}
	return `log in again with "codex login"`
}
