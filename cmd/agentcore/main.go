// Command agentcore is the scheduler's child: it issues permits, runs workers
// and stops them. The scheduler starts it and speaks JSON-RPC with it over
// standard input and output; see docs/protocol.md.
package main

import (
	"fmt"
	"os"

	"github.com/agentsched/agentsched/internal/adapters"
	"github.com/agentsched/agentsched/internal/agentcore"
	"github.com/agentsched/agentsched/internal/version"
)

func main() {
	if len(os.Args) == 2 && (os.Args[1] == "version" || os.Args[1] == "--version") {
		fmt.Println("agentcore", version.String())
		return
	}
	os.Exit(agentcore.Main(version.String(), adapters.All()))
}
