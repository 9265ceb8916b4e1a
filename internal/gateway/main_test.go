package gateway

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/testrun"
)

func TestMain(m *testing.M) {
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
