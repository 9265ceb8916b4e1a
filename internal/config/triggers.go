package config

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/trigger"
	"github.com/agentsched/agentsched/job"
)

func (v *validator) triggers() {
	found := trigger.ValidateAll(v.config.Triggers)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		path := fields.Join("triggers", string(name))
		for _, one := range unjoined(found[name]) {
			var field *job.FieldError
			switch {
			case !errors.As(one, &field):
				v.Failf(path, "%v", one)
			case field.Field == "":
				v.Failf(path, "%s", field.Message)
			default:
				v.Failf(path+"."+field.Field, "%s", field.Message)
			}
		}
	}
	v.adopt(v.config.Webhooks.Validate(), func(field string) string { return "webhooks." + field })
}

// unjoined returns the errors that were joined to one, in any depth.
func unjoined(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var list []error
	for _, one := range joined.Unwrap() {
		list = append(list, unjoined(one)...)
	}
	return list
}

// resolve takes the paths of triggers and certificates relative to folder.
func (c *Config) resolve(folder string) error {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	for name, s := range c.Triggers {
		c.Triggers[name] = s.Resolved(abs)
	}
	c.API.TLS = c.API.TLS.resolved(abs)
	if c.API.Files != "" && !filepath.IsAbs(c.API.Files) {
		c.API.Files = filepath.Join(abs, c.API.Files)
	}
	return nil
}

// AdapterOf returns the name of the adapter that drives a kind of worker.
func (c *Config) AdapterOf(kind job.WorkerKind) string {
	if w := c.Workers[kind]; w.Adapter != "" {
		return w.Adapter
	}
	return string(kind)
}
