package simulate

import (
	"fmt"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/policy"
)

// Load reads the workload file at path. An error about its content is of type
// strictyaml.Errors: every mistake with file, line, column, field and what
// would be right.
func Load(path string) (*Workload, error) {
	data, err := strictyaml.ReadFile(path, strictyaml.MaxBytes) // Parse refuses a larger one
	if err != nil {
		return nil, fmt.Errorf("read workload %s: %w", path, err)
	}
	return Decode(path, data)
}

// Decode reads a workload from a file's bytes; name stands for it in errors.
func Decode(name string, data []byte) (*Workload, error) {
	doc, err := strictyaml.Parse(name, data)
	if err != nil {
		return nil, err
	}
	var f file
	f.Policy = policy.Default()
	doc.Decode(&f)
	for _, bad := range fields.Check(&f, doc.Has) {
		doc.Failf(bad.Field, "%s", bad.Message)
	}
	validator{doc}.file(&f)
	if !doc.Has("policy.name") {
		f.Policy.Name = "" // none is chosen
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return &Workload{
		Name: name, Slots: f.Slots, Duration: f.Duration.Std(), Jobs: f.Jobs, Seed: f.Seed,
		Measure: f.Measure, Policy: f.Policy, tenants: f.Tenants,
	}, nil
}
