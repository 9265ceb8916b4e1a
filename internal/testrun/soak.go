package testrun

import (
	"os"
	"testing"
)

// SoakVariable, if it is set, has the tests do all that they can: `make soak`
// sets it. Without it, what takes long is sampled.
const SoakVariable = "AGENTSCHED_SOAK"

// Soaking reports whether the tests do all that they can.
func Soaking() bool { return os.Getenv(SoakVariable) != "" }

// Long skips a test that takes long, but in a soak. why says what is left to the
// tests that always run.
func Long(tb testing.TB, why string) {
	tb.Helper()
	if !Soaking() {
		tb.Skip("only in `make soak`: " + why)
	}
}
