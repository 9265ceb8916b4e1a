package agentcore

import (
	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/job"
)

// learnSecrets adds the keys that the workers' settings name: such a variable is
// secret whatever it is called.
func (c *Core) learnSecrets(s *settings) { c.secrets.Store(redact.New(c.secretValues(s)...)) }

// secretsOf is what takes the secrets out of what a run says: those of the core, and
// those among the variables that it was given.
func (c *Core) secretsOf(s *settings, environ map[string]string) *redact.Redactor {
	if len(environ) == 0 {
		return c.secrets.Load()
	}
	var given []string
	for name, value := range environ {
		given = append(given, name+"="+value)
	}
	return redact.New(append(c.secretValues(s), redact.FromEnviron(given)...)...)
}

func (c *Core) secretValues(s *settings) []redact.Value {
	values := redact.FromEnviron(c.cfg.Environ)
	for _, w := range s.Workers {
		if w.KeyEnv == "" || c.cfg.Lookup == nil {
			continue
		}
		if text, ok := c.cfg.Lookup(w.KeyEnv); ok {
			values = append(values, redact.Value{Name: w.KeyEnv, Text: text})
		}
	}
	return values
}

// redactOutcome takes the secrets out of what is said of an attempt. Left as they
// are: the session, by which it is resumed, the names of files, and the files
// themselves.
func redactOutcome(r *redact.Redactor, o *job.Outcome) {
	for _, text := range []*string{&o.Message, &o.Hint, &o.Answer, &o.DiffStat} {
		*text = r.String(*text)
	}
	for i := range o.Commands {
		o.Commands[i].Command = r.String(o.Commands[i].Command)
	}
	for _, list := range [][]string{o.Denied, o.LeftBehind} {
		for i := range list {
			list[i] = r.String(list[i])
		}
	}
	if o.Check != nil {
		o.Check.Text = r.String(o.Check.Text)
	}
}
