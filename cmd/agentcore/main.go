// Command agentcore is the scheduler's child: it issues permits, runs workers
// and stops them. The scheduler starts it and speaks JSON-RPC with it over
// standard input and output; see docs/protocol.md.
package main

import (
	"fmt"
	"os"

	"github.com/agentsched/agentsched/internal/agentcore"
)

func main() {
	if len(os.Args) == 2 && (os.Args[1] == "version" || os.Args[1] == "--version") {
		fmt.Println("agentcore", agentcore.Version())
		return
	}
	if len(os.Args) == 4 && os.Args[1] == agentcore.GoCacheCommand {
		os.Exit(agentcore.GoCacheMain(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 2 && os.Args[1] == agentcore.FuseCommand {
		os.Exit(agentcore.FuseMain())
	}
	os.Exit(agentcore.Main(agentcore.Adapters()))
}
