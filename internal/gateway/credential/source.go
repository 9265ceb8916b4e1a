package credential

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

type valueSource string

func (v valueSource) Secret(context.Context, string) (Credential, error) {
	return Credential{Token: string(v)}, nil
}

// maxKeyFile bounds a file or an output that holds a key, in bytes.
const maxKeyFile = 64 << 10

// fileSource reads the file each time, so that a changed key counts at once.
type fileSource string

func (f fileSource) Secret(context.Context, string) (Credential, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return Credential{}, fmt.Errorf("read the key: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return Credential{}, fmt.Errorf("read the key: %w", err)
	}
	return tokenOf(text, string(f))
}

func tokenOf(text []byte, from string) (Credential, error) {
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, "\r\n") || len(text) >= maxKeyFile {
		return Credential{}, fmt.Errorf("%s must give one line, the key", from)
	}
	return Credential{Token: token}, nil
}

// commandTime is how long a command may take to print a key: it may ask a person.
const commandTime = time.Minute

// commandSource keeps what the command printed until a provider refuses it.
type commandSource struct {
	command []string
	run     func(context.Context, []string) ([]byte, error)
	lock    chan struct{} // capacity 1: who has put into it holds what follows
	have    Credential
}

func (c *commandSource) Secret(ctx context.Context, stale string) (Credential, error) {
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return Credential{}, context.Cause(ctx)
	}
	if c.have.Token != "" && c.have.Token != stale {
		return c.have, nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, err := c.run(ctx, c.command)
	if err != nil {
		return Credential{}, fmt.Errorf("run %s: %w", c.command[0], err)
	}
	got, err := tokenOf(out, c.command[0])
	if err == nil {
		c.have = got
	}
	return got, err
}
