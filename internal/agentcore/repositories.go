package agentcore

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/gitproxy"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Credentials returns what a git host wants to see of the user.
type Credentials func(ctx context.Context, host, path string) (user, pass string, err error)

// openGit serves the run the repositories that its job names, with the user's credentials, which stay outside.
func (c *Confinement) openGit(credentials Credentials) error {
	if len(c.held.Spec.Git) == 0 {
		return nil
	}
	var allow []gitproxy.Repo
	for _, r := range c.held.Spec.Git {
		host, path, _ := strings.Cut(r.Repository, "/")
		allow = append(allow, gitproxy.Repo{Host: host, Path: path, Write: r.Push})
	}
	key := newKey()
	proxy, err := gitproxy.New(gitproxy.Config{
		Allow: allow, Key: key, Credentials: credentials, Record: c.asked,
	})
	if err != nil {
		return &worker.Failure{Class: job.Config, Message: fmt.Sprintf("git: %v", err), Hint: "correct the entry in the job file"}
	}
	c.endpoint.git = proxy
	c.keys = append(c.keys, redact.Value{Name: "run-key", Text: key})
	for _, item := range gitproxy.GitConfig(allow, "http://"+c.address, key) {
		c.git = append(c.git, item[0]+"="+item[1])
	}
	return nil
}

// gitEnviron returns settings of git, NAME=VALUE each, as variables.
func gitEnviron(settings []string) []string {
	if len(settings) == 0 {
		return nil
	}
	var config [][2]string
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		config = append(config, [2]string{name, value})
	}
	return gitproxy.Environ(config)
}

// asked tells of a request of the run's git.
func (c *Confinement) asked(a gitproxy.Access) {
	n := &job.Connection{Host: a.Host, Port: 443, Allowed: a.Allowed, Sent: a.Sent, Received: a.Received}
	if host, port, found := strings.Cut(a.Host, ":"); found {
		n.Host = host
		_, _ = fmt.Sscan(port, &n.Port) // of a checked form
	}
	if a.Err != nil {
		n.Reason = a.Err.Error()
	}
	text := "git fetch " + a.Path
	if a.Write {
		text = "git push " + a.Path
	}
	c.emit(job.Event{Kind: job.EventNetwork, Connection: n, Text: text, Millis: a.Took.Milliseconds()})
	if !a.Allowed {
		c.seen.refused(1)
	}
}

// credentialTime bounds the user's credential helper, which may ask a person.
const credentialTime = 30 * time.Second

// credentials asks the user's git, outside of any run, for what a host wants to see.
func (o outside) credentials(ctx context.Context, host, path string) (user, pass string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, credentialTime, fmt.Errorf("no answer within %s", credentialTime))
	defer cancel()
	out := &bounded{max: maxSecret}
	cmd := exec.Command("git", "-c", "core.askPass=", "credential", "fill")
	cmd.Dir = "/"
	cmd.Env = append(cmd.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "GCM_INTERACTIVE=never")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("protocol=https\nhost=%s\npath=%s\n\n", host, path))
	cmd.Stdout = out
	if err := o.host.Run(ctx, cmd); err != nil {
		return "", "", fmt.Errorf("git has no credentials for %s: %w", host, err)
	}
	for line := range bytes.Lines(out.Bytes()) {
		name, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "=")
		switch name {
		case "username":
			user = value
		case "password":
			pass = value
		}
	}
	return user, pass, nil
}
