package agentcore

import (
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/acp"
	"github.com/agentsched/agentsched/worker/claude"
	"github.com/agentsched/agentsched/worker/codex"
	"github.com/agentsched/agentsched/worker/exec"
	"github.com/agentsched/agentsched/worker/opencode"
	"github.com/agentsched/agentsched/worker/shell"
)

// Adapters returns the adapters that both programs have, by name. A further one is a
// folder below worker/ and a line here.
func Adapters() map[string]worker.Adapter {
	return map[string]worker.Adapter{
		"acp":      acp.Adapter{},
		"claude":   claude.Adapter{},
		"codex":    codex.Adapter{},
		"exec":     exec.Adapter{},
		"opencode": opencode.Adapter{},
		"shell":    shell.Adapter{},
	}
}
