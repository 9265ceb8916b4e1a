package simulate

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/policy"
)

// Load reads the workload file at path. An error about its content is of type
// strictyaml.Errors: every mistake with file, line, column, field and what
// would be right.
func Load(path string) (*Workload, error) {
	data, err := readFile(path)
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
	f.Policy.Name = "" // none is chosen
	doc.Decode(&f)
	v := validator{doc}
	v.file(&f)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return &Workload{
		Name: name, Slots: f.Slots, Duration: f.Duration.Std(), Jobs: f.Jobs, Seed: f.Seed,
		Measure: f.Measure, Policy: f.Policy, tenants: f.Tenants,
	}, nil
}

var errNotRegular = errors.New("is not a regular file")

// readFile reads a regular file: a pipe could block for ever and a device
// never end. One that is too large is left to strictyaml to refuse.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close() // only read: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxBytes+1))
	return data, plain(err)
}

// plain takes the path out of an error, since the message names it already.
func plain(err error) error {
	var inPath *os.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}
