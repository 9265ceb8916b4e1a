//go:build !linux

package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func onTerminal(*testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, _ []string) { ts.Fatalf("there is no terminal for tests here") }
}
