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
	if help := agentcore.Helper(os.Args); help != nil {
		os.Exit(help())
	}
	os.Exit(agentcore.Main(agentcore.Adapters()))
}
