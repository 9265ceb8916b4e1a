package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

const (
	// maxRefusal is how much of a refusal's body goes into the log, in bytes.
	maxRefusal = 512
	// maxAnswerHead bounds the header of an answer, in bytes.
	maxAnswerHead = 64 << 10
)

// post sends the body to the address; any 2xx is success. Errors do not show
// the address: its path or query may be what proves the right to use it.
func post(ctx context.Context, address string, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the webhook's address is no URL: %w", bare(err))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "agentsched")
	client := http.Client{
		// An escalation is rare: no connection is kept open for the next one.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswerHead},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	resp, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("post to %s: %w", r.URL.Host, bare(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	return fmt.Errorf("post to %s: it answered %s: %q", r.URL.Host, resp.Status, said)
}

// hostOf returns the host of an address, which may be shown; the rest may be a secret.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// bare returns the reason without the address that net/http puts before it.
func bare(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}
