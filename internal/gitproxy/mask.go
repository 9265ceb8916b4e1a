package gitproxy

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/url"
	"slices"

	"github.com/agentsched/agentsched/internal/redact"
)

// credential is what a host wants to see.
type credential struct{ user, pass string }

func (c credential) empty() bool { return c == credential{} }

// secrets returns the forms in which a credential must not reach a run. short
// says that it is too short to be found in a text.
func (c credential) secrets() (forms [][]byte, short bool) {
	secret := c.pass
	switch c.pass {
	case "", "x-oauth-basic", "x-access-token": // the token is the user's name
		secret = c.user
	}
	if c.empty() {
		return nil, false
	}
	basic := base64.StdEncoding.EncodeToString([]byte(c.user + ":" + c.pass))
	for _, s := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), basic} {
		if b := []byte(s); len(b) >= redact.MinValue && !slices.ContainsFunc(forms, func(f []byte) bool { return bytes.Equal(f, b) }) {
			forms = append(forms, b)
		}
	}
	return forms, len(secret) < redact.MinValue
}

// redact takes the credential out of a text for people. If it is too short to be
// found, nothing of the text is left.
func (c credential) redact(text string) string {
	forms, short := c.secrets()
	if short {
		return ""
	}
	var values []redact.Value
	for _, f := range forms {
		values = append(values, redact.Value{Name: "git credential", Text: string(f)})
	}
	return redact.New(values...).String(text)
}

// mask replaces secrets in what is written to it by as many asterisks, so that
// the lengths of git's packets stay right.
type mask struct {
	w       io.Writer
	secrets [][]byte
	held    []byte // the beginning of a secret, perhaps
}

func (m *mask) Write(p []byte) (int, error) {
	if len(m.secrets) == 0 {
		return m.w.Write(p)
	}
	b := append(m.held, p...)
	hold := 0
	for _, s := range m.secrets {
		for at := 0; ; {
			i := bytes.Index(b[at:], s)
			if i < 0 {
				break
			}
			at += i
			for range s {
				b[at] = '*'
				at++
			}
		}
	}
	for _, s := range m.secrets {
		for n := min(len(s)-1, len(b)); n > hold; n-- {
			if bytes.HasSuffix(b, s[:n]) {
				hold = n
			}
		}
	}
	_, err := m.w.Write(b[:len(b)-hold])
	m.held = append([]byte(nil), b[len(b)-hold:]...)
	return len(p), err
}

// flush writes what is held back.
func (m *mask) flush() error {
	_, err := m.w.Write(m.held)
	m.held = nil
	return err
}
