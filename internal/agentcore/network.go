package agentcore

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/net/http/httpproxy"

	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// openNetwork opens the run's way to the hosts that its job names, and to those that people have allowed besides.
func (c *Confinement) openNetwork(ctx context.Context, granted []string) error {
	rules, err := egress.Parse(c.held.Spec.NetworkHosts(), egress.Presets())
	if err != nil {
		f := &worker.Failure{Class: job.Config, Message: fmt.Sprintf("network: %v", err), Hint: "correct the entry in the job file"}
		var entry *egress.EntryError
		if errors.As(err, &entry) {
			f.Message = fmt.Sprintf("network[%d]: %v", entry.Index, entry)
		}
		return f
	}
	key := ""
	if !c.own { // else nobody but the run reaches the endpoint
		key = newKey()
		c.keys = append(c.keys, redact.Value{Name: "run-key", Text: key})
	}
	c.proxyURL = egress.URL(c.address, key)
	c.proxy = egress.New(ctx, egress.Config{
		Key: key, Rules: rules, Upstream: httpproxy.FromEnvironment().ProxyFunc(),
		Record: c.connected,
	})
	c.endpoint.proxy = c.proxy
	c.rules, _ = rules.With(granted)
	c.grant(granted)
	return c.openRelays()
}

// grant replaces what people have allowed the run beside its job's network. What cannot be meant is told and left out: it
// must not keep runs from starting.
func (c *Confinement) grant(entries []string) {
	if err := c.proxy.Grant(entries...); err != nil {
		c.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("what was allowed besides the job's network: %v", err)})
	}
}

// connected tells of a connection that the run has made, or was refused.
func (c *Confinement) connected(r egress.Record) {
	n := &job.Connection{
		Host: r.Host, Port: int(r.Port), Allowed: r.Allowed, Reason: r.Reason, Allow: r.Allow, Sent: r.Up, Received: r.Down, More: r.Unrecorded,
	}
	if r.Address.IsValid() {
		n.Address = r.Address.String()
	}
	c.emit(job.Event{Kind: job.EventNetwork, Connection: n, Millis: r.Duration.Milliseconds()})
	if !r.Allowed {
		c.seen.refused(max(1, r.Unrecorded))
	}
}

// hostsProxies returns the variables by which the host's programs find their way out, for a run that may use all of it. Its
// own loopback is reached without.
func hostsProxies(user func(string) string) []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		if value := user(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	if len(env) == 0 {
		return nil
	}
	direct := "localhost,127.0.0.1,::1"
	if own := user("NO_PROXY") + user("no_proxy"); own != "" {
		direct += "," + own
	}
	return append(env, "NO_PROXY="+direct, "no_proxy="+direct)
}
