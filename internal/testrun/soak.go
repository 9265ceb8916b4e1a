package testrun

import (
	"os"
	"strconv"
	"testing"
	"time"
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

// SeedVariable gives the seed from which a test makes its choices.
const SeedVariable = "AGENTSCHED_SEED"

// Seed returns the seed of a test's choices: the one that the environment gives, a
// new one in a soak, and else always the same. What everybody runs before a change
// goes in asks the same questions each time; new ones are the soak's.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	seed := uint64(1)
	if text := os.Getenv(SeedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("%s: %v", SeedVariable, err)
		}
	} else if Soaking() {
		seed = uint64(time.Now().UnixMicro())
	}
	tb.Logf("again with %s=%d", SeedVariable, seed)
	return seed
}
