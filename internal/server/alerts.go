package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
)

// alertsOf returns what a person should look at, the newest first. What lasts is
// as old as it began.
func alertsOf(st *api.Status, told []isolation.Escalation, now time.Time) []api.Alert {
	alerts := []api.Alert{}
	for _, x := range told {
		alerts = append(alerts, api.Alert{At: x.Time, Kind: "escalation", Scope: string(x.Scope), Message: x.Message})
	}
	for _, i := range st.Isolations {
		if !slices.ContainsFunc(told, func(x isolation.Escalation) bool { return string(x.Scope) == i.Scope && string(x.Cause) == i.Cause }) {
			alerts = append(alerts, api.Alert{At: i.Since, Kind: "isolation", Scope: i.Scope, Message: i.Message})
		}
	}
	for _, t := range st.FailedTeams {
		alerts = append(alerts, api.Alert{At: t.At, Kind: "team", Scope: "batch:" + string(t.Batch), Message: fmt.Sprintf("team %s has given up: %s", t.Team, t.Why)})
	}
	for _, c := range st.Circuits {
		if c.State != "closed" {
			alerts = append(alerts, api.Alert{At: now, Kind: "circuit", Scope: string(isolation.WorkerScope(c.Worker)), Message: circuitText(&c)})
		}
	}
	for i := range st.Cores {
		if text := coreText(&st.Cores[i]); text != "" {
			alerts = append(alerts, api.Alert{At: st.Cores[i].Since, Kind: "core", Scope: "core:" + st.Cores[i].Name(), Message: text})
		}
	}
	slices.SortStableFunc(alerts, func(a, b api.Alert) int { return b.At.Compare(a.At) })
	return alerts[:min(len(alerts), maxAlerts)]
}

// maxAlerts is how many alerts an overview has at most.
const maxAlerts = 50

func circuitText(c *api.Circuit) string {
	what := string(c.Worker)
	if c.Model != "" {
		what += ":" + c.Model
	}
	return fmt.Sprintf("the breaker of %s is %s: %s", what, c.State, c.Cause)
}

// coreText says what is unusual about a core; "" if nothing is.
func coreText(c *api.Core) string {
	switch {
	case c.State == "isolated" || c.State == "down":
		return fmt.Sprintf("core %s is %s: %s", c.Name(), c.State, c.Cause)
	case c.Stage != "" && c.Stage != "normal":
		return fmt.Sprintf("core %s defends itself, stage %s: %s", c.Name(), c.Stage, c.Evidence)
	}
	return ""
}
