//go:build !linux

package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

type seats struct{}

func terminalVerbs(*testing.T) map[string]func(*testscript.TestScript, bool, []string) {
	verbs := map[string]func(*testscript.TestScript, bool, []string){}
	for _, name := range []string{"onterminal", "terminal", "press", "shown", "hangup", "left"} {
		verbs[name] = func(ts *testscript.TestScript, _ bool, _ []string) { ts.Fatalf("there is no terminal for tests here") }
	}
	return verbs
}
