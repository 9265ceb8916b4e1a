package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/queue"
)

// Triggers is the answer to GET /v1/triggers.
type Triggers struct {
	Triggers []trigger.Status `json:"triggers"`
}

// ShowTriggers makes the server tell of triggers. It is called before Serve.
func (s *Server) ShowTriggers(status func() []trigger.Status) { s.triggers = status }

func (s *Server) listTriggers(*http.Request) (any, error) {
	if s.triggers == nil {
		return nil, fmt.Errorf("triggers: %w here: only `scheduler serve` fires them", queue.ErrNotFound)
	}
	return Triggers{append([]trigger.Status{}, s.triggers()...)}, nil
}

// Triggers returns how the triggers of the running server are doing. The error
// is ErrNotRunning or a *Problem.
func (c *Client) Triggers(ctx context.Context) ([]trigger.Status, error) {
	var out Triggers
	err := c.do(ctx, http.MethodGet, "/v1/triggers", nil, &out)
	return out.Triggers, err
}
