package jobfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// Options are what a job file is read against.
type Options struct {
	// Now is what durations in `deadline` and `runnable_at` are counted from. Required.
	Now time.Time
	// Workers are the kinds of worker that exist; empty means that any name will do.
	Workers []string
	// BaseDir is the folder that relative paths start from; "" means the job
	// file's own, and for Decode the current one.
	BaseDir string
}

// Load reads the job file at path. An error about its content is of type
// strictyaml.Errors.
func Load(path string, opts Options) ([]job.Spec, error) {
	return LoadAll([]string{path}, opts)
}

// LoadAll reads several job files whose jobs are submitted together, so that
// their ids must differ across the files too. The jobs come in the order of
// the files.
func LoadAll(paths []string, opts Options) ([]job.Spec, error) {
	var all []job.Spec
	var errs []error
	seen := newSeen()
	for _, path := range paths {
		specs, err := load(path, opts, seen)
		all = append(all, specs...)
		errs = append(errs, err)
	}
	if err := strictyaml.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// Decode reads a job file from its bytes; name stands for it in errors.
func Decode(name string, data []byte, opts Options) ([]job.Spec, error) {
	return decode(name, data, opts, newSeen())
}

// seen is where things stand that must not be said twice, in this file and in
// those before it: e.g. "jobs.yaml:3:10".
type seen struct {
	ids  map[job.Name]string
	keys map[tenantKey]string // of the first job that has the key
}

// tenantKey is what makes jobs duplicates.
type tenantKey struct {
	tenant job.Tenant
	key    string
}

func newSeen() seen { return seen{map[job.Name]string{}, map[tenantKey]string{}} }

func load(path string, opts Options, seen seen) ([]job.Spec, error) {
	data, err := readFile(path, strictyaml.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("read job file %s: %w", path, err)
	}
	if opts.BaseDir == "" {
		opts.BaseDir = filepath.Dir(path)
	}
	return decode(path, data, opts, seen)
}

// decode reads one file and adds to seen.
func decode(name string, data []byte, opts Options, seen seen) ([]job.Spec, error) {
	base, err := filepath.Abs(opts.BaseDir)
	if err != nil {
		return nil, fmt.Errorf("make folder %q of job file %s absolute: %w", opts.BaseDir, name, err)
	}
	doc, err := strictyaml.Parse(name, data)
	if err != nil {
		return nil, err
	}
	var f file
	doc.Decode(&f)
	r := reader{Doc: doc, file: name, base: base, now: opts.Now.UTC(), workers: opts.Workers, seen: seen}
	specs := r.specs(&f)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return specs, nil
}

var errTooLarge = errors.New("is too large")

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	data, err := strictyaml.ReadFile(path, limit)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: at most %d bytes are allowed", errTooLarge, limit)
	}
	return data, nil
}
