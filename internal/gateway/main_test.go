package gateway

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/worker/opencode/relay"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == relay.Command { // of a real CLI
		os.Exit(relay.Main(os.Args[2:]))
	}
	end, err := testrun.Keep()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		end()
		os.Exit(code)
	}))
}
