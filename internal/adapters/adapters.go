// Package adapters is the list of worker adapters that the two programs have.
//
// Nothing comes in; out goes a fresh map from name to adapter. A further
// adapter is one folder below worker/ and one line here.
package adapters

import (
	"github.com/agentsched/agentsched/worker"
	"github.com/agentsched/agentsched/worker/claude"
	"github.com/agentsched/agentsched/worker/codex"
	"github.com/agentsched/agentsched/worker/exec"
	"github.com/agentsched/agentsched/worker/opencode"
	"github.com/agentsched/agentsched/worker/shell"
)

// All returns every adapter by its name.
func All() map[string]worker.Adapter {
	return map[string]worker.Adapter{
		"claude":   claude.Adapter{},
		"codex":    codex.Adapter{},
		"exec":     exec.Adapter{},
		"opencode": opencode.Adapter{},
		"shell":    shell.Adapter{},
	}
}
