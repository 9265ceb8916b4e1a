package sandbox

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary do the acts that it is told, instead of the tests.
const helperEnv = "SANDBOX_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(actor())
	}
	goleak.VerifyTestMain(m)
}
