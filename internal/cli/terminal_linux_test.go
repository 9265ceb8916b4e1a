package cli

import (
	"fmt"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentsched/agentsched/internal/terminaltest"
)

// onTerminal returns the verb of that name. The ttyin and ttyout of testscript close
// the terminal when the program has ended, and lose what was not read by then.
func onTerminal(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) == 0 {
			ts.Fatalf("usage: onterminal PROGRAM ARGS...")
		}
		x := terminaltest.Open(t, 200, 50)
		defer x.Close()
		x.Watch()
		err := ts.Exec("sh", append([]string{"-c", `exec "$@" >"$0"`, x.Slave.Name()}, args...)...)
		screen := x.Screen()
		ts.Check(err)
		fmt.Fprint(ts.Stdout(), screen)
	}
}
