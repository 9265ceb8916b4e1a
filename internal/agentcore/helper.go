package agentcore

import "github.com/agentsched/agentsched/worker/opencode/relay"

// Helper returns what this program does where its arguments say that it was started by itself, to help a core or a run;
// nil if they do not. It is called first. The result is the program's exit code.
func Helper(args []string) func() int {
	switch {
	case len(args) == 2 && args[1] == FuseCommand:
		return FuseMain
	case len(args) == 4 && args[1] == GoCacheCommand:
		return func() int { return GoCacheMain(args[2], args[3]) }
	case len(args) > 2 && args[1] == relay.Command:
		return func() int { return relay.Main(args[2:]) }
	}
	return nil
}
