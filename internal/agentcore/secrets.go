package agentcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/proc"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Bounds of a secret that is looked up.
const (
	maxSecret  = 64 << 10         // bytes
	secretTime = 30 * time.Second // for its command, which may ask an agent for a password
)

// giveSecrets looks up the secrets that the job is granted. They lie in files of the run's temporary folder, or in
// variables where the configuration says so; env names the files and holds the others. From here on they are taken out of
// all that is told of the run. Nothing of it may be told before.
func (e *execution) giveSecrets(ctx context.Context) (env []string, err error) {
	users := outside{host: e.session.host, environ: e.core.cfg.Environ, lookup: e.core.cfg.Lookup}
	env, values, err := users.secrets(ctx, e.submit.Spec.Secrets, e.permit.Tenant, e.settings.Secrets, e.temp)
	if len(values) > 0 {
		e.secrets = e.secrets.With(values...)
	}
	return env, err
}

// outside is where secrets, keys and credentials of the user's are looked up for runs, which have no way there.
type outside struct {
	host    *proc.Host
	environ []string
	lookup  func(name string) (string, bool) // nil finds nothing
}

// secrets is giveSecrets for a job of a tenant. temp is the run's temporary folder.
func (o outside) secrets(ctx context.Context, names []string, tenant job.Tenant, configured map[string]ipc.Secret, temp string) (env []string, values []redact.Value, err error) {
	for _, name := range names {
		secret, known := configured[name]
		switch {
		case !known:
			return nil, nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("secret %s is not in the configuration", name),
				Hint: "add it under secrets, or leave it out of the job"}
		case len(secret.Tenants) > 0 && !slices.Contains(secret.Tenants, tenant):
			return nil, nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("secret %s is not given to jobs of tenant %s", name, tenant),
				Hint: fmt.Sprintf("add the tenant to secrets.%s.tenants", name)}
		}
		text, err := o.secret(ctx, secret)
		if err != nil {
			return nil, nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("secret %s: %v", name, err), Hint: fmt.Sprintf("look at secrets.%s of the configuration", name)}
		}
		values = append(values, redact.Value{Name: name, Text: text})
		if secret.Variable {
			env = append(env, name+"="+text)
			continue
		}
		path := filepath.Join(temp, "secrets", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, nil, fmt.Errorf("give the run its secrets: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, nil, fmt.Errorf("give the run its secrets: %w", err)
		}
		env = append(env, name+"_FILE="+path)
	}
	return env, values, nil
}

// secret returns what a secret is, without a line break at its end. Its error never holds it.
func (o outside) secret(ctx context.Context, s ipc.Secret) (string, error) {
	var data []byte
	var err error
	switch {
	case s.File != "":
		data, err = readSecret(s.File)
	case len(s.Command) > 0:
		data, err = o.ask(ctx, s.Command)
	case s.Env != "":
		text, set := "", false
		if o.lookup != nil {
			text, set = o.lookup(s.Env)
		}
		if !set {
			return "", fmt.Errorf("the scheduler has no variable %s", s.Env)
		}
		data = []byte(text)
	default:
		return "", errors.New("the configuration says nowhere to find it")
	}
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		return "", errors.New("it is empty")
	case len(data) > maxSecret:
		return "", fmt.Errorf("it is longer than %d bytes", maxSecret)
	case strings.ContainsRune(text, 0):
		return "", errors.New("it holds a zero byte")
	}
	return text, nil
}

// readSecret reads a file of the host's, at most a byte more than a secret may have.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is no file", path), err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// ask runs a command that prints a secret or a key, outside of any run.
func (o outside) ask(ctx context.Context, command []string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, secretTime, fmt.Errorf("it took longer than %s", secretTime))
	defer cancel()
	out, said := &bounded{max: maxSecret + 1}, &bounded{max: 1 << 10}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = o.environ, out, said
	if err := o.host.Run(ctx, cmd); err != nil {
		if why := strings.TrimSpace(said.String()); why != "" {
			return nil, fmt.Errorf("%w: %s", err, why)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// bounded keeps the first max bytes of what is written to it.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(b.max-b.Len(), 0))])
	return len(p), nil
}
