package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashChildVariable); path != "" {
		os.Exit(crashChild(path))
	}
	if arg := os.Getenv(linearChildVariable); arg != "" {
		os.Exit(linearChild(arg))
	}
	goleak.VerifyTestMain(m)
}
