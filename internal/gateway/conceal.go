package gateway

import (
	"bytes"
	"io"

	"github.com/agentsched/agentsched/internal/gateway/credential"
)

// concealer passes an answer on without the provider's key, should the provider repeat it, in any pieces. It holds back only
// what may be the beginning of the key.
type concealer struct {
	to     io.Writer
	secret []byte // empty: nothing is concealed
	held   []byte
}

func (c *concealer) Write(p []byte) (int, error) {
	n := len(p)
	if len(c.held) > 0 {
		p = append(c.held, p...)
		c.held = nil
	}
	for len(c.secret) > 0 {
		i := bytes.Index(p, c.secret)
		if i < 0 {
			break
		}
		if err := c.put(p[:i], []byte(credential.Concealed)); err != nil {
			return 0, err
		}
		p = p[i+len(c.secret):]
	}
	keep := c.begins(p)
	if keep > 0 {
		c.held = bytes.Clone(p[len(p)-keep:])
	}
	return n, c.put(p[:len(p)-keep])
}

// Close passes on what is held back.
func (c *concealer) Close() error {
	held := c.held
	c.held = nil
	return c.put(held)
}

func (c *concealer) put(pieces ...[]byte) error {
	for _, p := range pieces {
		if len(p) == 0 {
			continue
		}
		if _, err := c.to.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// begins returns how many bytes at the end of p the secret may begin with.
func (c *concealer) begins(p []byte) int {
	for n := min(len(c.secret)-1, len(p)); n > 0; n-- {
		if p[len(p)-n] == c.secret[0] && bytes.HasPrefix(c.secret, p[len(p)-n:]) {
			return n
		}
	}
	return 0
}
