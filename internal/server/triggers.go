package server

import (
	"fmt"
	"net/http"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/queue"
)

// ShowTriggers makes the server tell of triggers. It is called before Serve.
func (s *Server) ShowTriggers(status func() []trigger.Status) { s.triggers = status }

func (s *Server) listTriggers(*http.Request) (any, error) {
	if s.triggers == nil {
		return nil, fmt.Errorf("triggers: %w here: only `scheduler serve` fires them", queue.ErrNotFound)
	}
	return client.Triggers{Triggers: append([]trigger.Status{}, s.triggers()...)}, nil
}
