package browser

import "testing"

// TestDashboard does what a person does, each in a browser context of its own, all on
// one daemon.
func TestDashboard(t *testing.T) {
	have := needTools(t)
	b := openBrowser(t, have)
	t.Logf("Chromium %s", b.ready.Ready)
	d := newDaemon(t, have.node)
	d.config["policy"] = obj{"name": "priority", "tenants": obj{"granted": obj{"budget": obj{"tokens": 5000}}}}
	d.config["cost_windows"] = []obj{{"window": "24h", "max_usd": 1000}}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"link", "logout", "submit", "jobFile", "approve", "reject", "cancel", "requeue", "pause", "nodes", "overview", "followLog", "jobList",
		"diff", "steps", "workflow", "meanwhile", "pipelines", "inbox", "agents", "timeline", "readOnly",
		"questions", "words", "tell", "resend", "followUp", "comments", "notify", "longTalk", "brokenStream", "reader", "reconnect",
	} {
		t.Run(name, func(t *testing.T) { b.play(t, d, name, nil) })
	}
}
