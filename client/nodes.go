package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/agentsched/agentsched/api"
)

// Nodes returns the hosts that run jobs for the scheduler.
func (c *Client) Nodes(ctx context.Context) ([]api.FleetNode, error) {
	var out api.FleetNodes
	err := c.get(ctx, "/v1/nodes", nil, &out)
	return out.Nodes, err
}

// Node returns a node.
func (c *Client) Node(ctx context.Context, name string) (api.FleetNode, error) {
	var out api.FleetNode
	err := c.get(ctx, nodePath(name, ""), nil, &out)
	return out, err
}

// CordonNode has a node be given no new jobs, and returns it. It need not have come yet.
func (c *Client) CordonNode(ctx context.Context, name string, in api.CordonNode) (api.FleetNode, error) {
	var out api.FleetNode
	err := c.post(ctx, nodePath(name, "/cordon"), in, &out)
	return out, err
}

// UncordonNode has a node be given jobs again, and returns it.
func (c *Client) UncordonNode(ctx context.Context, name string) (api.FleetNode, error) {
	var out api.FleetNode
	err := c.post(ctx, nodePath(name, "/uncordon"), nil, &out)
	return out, err
}

// DrainNode cordons a node and begins to empty it. It is empty when Running of what Node returns is 0.
func (c *Client) DrainNode(ctx context.Context, name string, in api.DrainNode) (api.FleetNode, error) {
	var out api.FleetNode
	err := c.post(ctx, nodePath(name, "/drain"), in, &out)
	return out, err
}

// RemoveNode forgets a node, of which the caller says that none of its runs lives: its jobs go on elsewhere at
// once. A node that is connected is refused, unless force is set.
func (c *Client) RemoveNode(ctx context.Context, name string, force bool) (api.RemovedNode, error) {
	var out api.RemovedNode
	err := c.do(ctx, request{method: http.MethodDelete, path: nodePath(name, ""), query: url.Values(query{}.flag("force", force))}, &out)
	return out, err
}

func nodePath(name, rest string) string { return "/v1/nodes/" + url.PathEscape(name) + rest }
