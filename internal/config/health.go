package config

import (
	"strings"

	"github.com/agentsched/agentsched/job"
)

// adopt takes over the mistakes that another package found in a value of its
// own, *job.FieldErrors joined, each at the path that place gives its field.
func (v *validator) adopt(err error, place func(field string) string) {
	for _, one := range unjoined(err) {
		field, ok := one.(*job.FieldError)
		if !ok {
			v.Failf("", "%v", one)
			continue
		}
		path := place(field.Field)
		if v.Has(path) {
			v.Failf(path, "%s", field.Message)
		} else {
			v.Failf(path, "%s (the file leaves it at its default)", field.Message)
		}
	}
}

// watchdogPath returns where the file has a field of watchdog.Config.
func watchdogPath(field string) string {
	if strings.HasPrefix(field, "escalation.") {
		return field
	}
	return "watchdog." + field
}

// notification looks at how escalations are told. Its messages never repeat
// the webhook's address, which may be a secret itself.
func (v *validator) notification() {
	e := v.config.Escalation
	v.program("escalation.command[0]", e.Command)
	if e.Webhook != "" {
		switch web, credentials := isWeb(e.Webhook); {
		case !web:
			v.Failf("escalation.webhook", "want an address such as https://alerts.example.com/agents")
		case credentials:
			v.Failf("escalation.webhook", "must not hold a user or a password; let escalation.command make a call that needs them")
		}
	}
}
