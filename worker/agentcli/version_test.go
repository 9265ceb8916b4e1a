package agentcli

import (
	"testing"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

func TestJudge(t *testing.T) {
	p := worker.Package{Name: "@x/agent", Program: "agent", Oldest: "1.9.2", Version: "1.18.33"}
	const (
		newer = "is newer than 1.18.33, the newest version that this scheduler is tested with"
		old   = "is too old: version 1.9.2 or later is needed"
	)
	for version, want := range map[string]struct{ warning, refused string }{
		"1.18.33": {}, "1.9.2": {}, "1.10.0": {}, "1.18.33-rc.1": {}, "": {}, "1.18": {}, "devel": {}, "1.-2.3": {}, "99999999999.0.0": {},
		"1.18.34": {warning: "agent 1.18.34 " + newer}, "1.19.0+build": {warning: "agent 1.19.0 " + newer}, "2.0.0": {warning: "agent 2.0.0 " + newer},
		"1.9.1": {refused: "agent 1.9.1 " + old}, "0.200.0": {refused: "agent 0.200.0 " + old}, "1.9.1-beta": {refused: "agent 1.9.1 " + old},
	} {
		warning, refused := Judge(p, version)
		if warning != want.warning || (refused == nil) != (want.refused == "") {
			t.Errorf("%q: %q, %v", version, warning, refused)
		}
		if refused != nil && (refused.Message != want.refused || refused.Class != job.Config || refused.Hint != "update it: npm install -g @x/agent@1.18.33") {
			t.Errorf("%q: %+v", version, refused)
		}
	}
}
