package agentcore

import (
	"os"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/ipc"
)

// TestProtocolNamesEveryMethod: docs/protocol.md has a row for each, and for
// nothing else.
func TestProtocolNamesEveryMethod(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range methods {
		want[m] = "scheduler"
	}
	for _, n := range []string{
		ipc.NotifyWorkerEvent, ipc.NotifyJobCompleted, ipc.NotifyJobCancelled, ipc.NotifyEscalation, ipc.NotifyMetrics, ipc.NotifyCircuits,
		ipc.MethodStoreStep, ipc.MethodListSteps, ipc.MethodAskPerson, ipc.MethodReportTalk, ipc.MethodStreamLines, ipc.MethodReadParcel, ipc.MethodReadPatch,
		ipc.MethodSharePermit, ipc.MethodReturnPermit, ipc.MethodReserve, ipc.MethodRelease,
		ipc.MethodSubmitChild, ipc.MethodListChildren, ipc.MethodReadChild, ipc.MethodCancelChild, ipc.MethodNotes,
	} {
		want[n] = "core"
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		name, from := strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2])
		if want[name] != from {
			t.Errorf("%s is listed as from the %s, want %q", name, from, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is not in the table", name)
	}
}
