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

// openNetwork opens the run's way to the hosts that its job names.
func (c *Confinement) openNetwork(ctx context.Context) error {
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
	c.rules, c.proxyURL = rules, egress.URL(c.address, key)
	c.proxy = egress.New(ctx, egress.Config{
		Key: key, Rules: rules, Upstream: httpproxy.FromEnvironment().ProxyFunc(),
		Record: c.connected,
	})
	c.endpoint.proxy = c.proxy
	return nil
}

// connected tells of a connection that the run has made, or was refused.
func (c *Confinement) connected(r egress.Record) {
	n := &job.Connection{
		Host: r.Host, Port: int(r.Port), Allowed: r.Allowed, Reason: r.Reason, Sent: r.Up, Received: r.Down, More: r.Unrecorded,
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
