package jobfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// Options are what a job file is read against.
type Options struct {
	// Now is what durations in `deadline` and `runnable_at` are counted from. Required.
	Now time.Time
	// Workers are the kinds of worker that exist; empty means that any name will do.
	Workers []string
	// Domains are those that a job may name beside its agent's own; empty means any.
	Domains []string
	// Grants returns what a job asks for that the host does not allow; nil allows everything.
	Grants func(*job.Spec) []*job.FieldError
	// BaseDir is the folder that relative paths start from; "" means the job
	// file's own, and for Decode the current one.
	BaseDir string
	// Files are what a job file from elsewhere may name; nil means every file that
	// this process can read, which is right for a job file of its own user.
	Files *Files
	// Parcels are folders that were brought along, by their absolute paths on the host of
	// the job file, each with its digest, and where in it the folder is.
	Parcels map[string]job.Parcel
}

// Jobs is what job files that are submitted together say.
type Jobs struct {
	Specs    []job.Spec // in the order of the files
	Workflow job.Workflow
}

// LoadJobs reads job files whose jobs are submitted together: their ids must
// differ, and they may name each other, across the files too. An error about
// the content of files is of type strictyaml.Errors.
func LoadJobs(paths []string, opts Options) (Jobs, error) {
	b := newBatch(opts)
	for _, path := range paths {
		b.load(path)
	}
	return b.read()
}

// DecodeJobs reads a job file from its bytes; name stands for it in errors.
func DecodeJobs(name string, data []byte, opts Options) (Jobs, error) {
	b := newBatch(opts)
	b.decode(name, data, opts.BaseDir)
	return b.read()
}

// Load returns the jobs of one file, without what they have in common.
func Load(path string, opts Options) ([]job.Spec, error) {
	return LoadAll([]string{path}, opts)
}

// LoadAll returns the jobs of LoadJobs.
func LoadAll(paths []string, opts Options) ([]job.Spec, error) {
	jobs, err := LoadJobs(paths, opts)
	return jobs.Specs, err
}

// Decode returns the jobs of DecodeJobs.
func Decode(name string, data []byte, opts Options) ([]job.Spec, error) {
	jobs, err := DecodeJobs(name, data, opts)
	return jobs.Specs, err
}

// batch is what the files have in common whose jobs are submitted together.
type batch struct {
	opts    Options
	now     time.Time // in UTC
	sources []source
	files   []jobFile
	agents  map[job.AgentID]*profile
	staged  map[job.Name]bool // jobs of a pipeline's stages
	seen
	jobs Jobs
	// Where the jobs, the teams and the pipelines of jobs stand.
	origins     map[job.Name]*origin
	teamsAt     []part
	pipelinesAt []part
}

// source is a file that was opened, or why it could not be.
type source struct {
	doc *strictyaml.Doc
	err error
}

// jobFile is a file whose form has been read.
type jobFile struct {
	reader
	fields *file
}

// seen is where things stand that must not be said twice, in this file and in
// those before it: e.g. "jobs.yaml:3:10".
type seen struct {
	ids         map[job.Name]string
	keys        map[tenantKey]string // of the first job that has the key
	teams       map[job.Name]string
	pipelines   map[job.Name]string
	agentsFiles map[string]bool // absolute paths
}

// tenantKey is what makes jobs duplicates.
type tenantKey struct {
	tenant job.Tenant
	key    string
}

func newBatch(opts Options) *batch {
	return &batch{
		opts: opts, now: opts.Now.UTC(),
		agents: map[job.AgentID]*profile{}, staged: map[job.Name]bool{}, origins: map[job.Name]*origin{},
		seen: seen{map[job.Name]string{}, map[tenantKey]string{}, map[job.Name]string{}, map[job.Name]string{}, map[string]bool{}},
	}
}

func (b *batch) load(path string) {
	data, err := readFile(path, strictyaml.MaxBytes)
	if err != nil {
		b.sources = append(b.sources, source{err: fmt.Errorf("read job file %s: %w", path, err)})
		return
	}
	dir := b.opts.BaseDir
	if dir == "" {
		dir = filepath.Dir(path)
	}
	b.decode(path, data, dir)
}

// decode reads the form of one job file, and of the agents that it brings: a job
// of any file may be theirs.
func (b *batch) decode(name string, data []byte, dir string) {
	base, err := filepath.Abs(dir)
	if err != nil {
		b.sources = append(b.sources, source{err: fmt.Errorf("make folder %q of job file %s absolute: %w", dir, name, err)})
		return
	}
	var f file
	doc := b.open(name, data, &f)
	if doc == nil {
		return
	}
	r := reader{Doc: doc, file: name, base: base, batch: b}
	b.files = append(b.files, jobFile{r, &f})
	r.readAgents(f.Agents)
	r.readAgentsFile(f.AgentsFile)
	for _, p := range f.Pipelines {
		for _, s := range p.Stages {
			b.staged[job.Name(s.Job)] = true
		}
	}
}

// open decodes a file into v; it returns nil if that is no YAML.
func (b *batch) open(name string, data []byte, v any) *strictyaml.Doc {
	doc, err := strictyaml.Parse(name, data)
	b.sources = append(b.sources, source{doc, err})
	if err != nil {
		return nil
	}
	doc.Decode(v)
	for _, bad := range fields.Check(v, doc.Has) {
		doc.Failf(bad.Field, "%s", bad.Message)
	}
	return doc
}

// read returns what the files say. What jobs say about each other is looked at
// once each of them is right by itself.
func (b *batch) read() (Jobs, error) {
	for i := range b.files {
		f := &b.files[i]
		b.jobs.Specs = append(b.jobs.Specs, f.specs(f.fields)...)
		f.readTeams(f.fields.Teams)
		f.readPipelines(f.fields.Pipelines)
	}
	if err := b.err(); err != nil {
		return Jobs{}, err
	}
	b.join()
	b.check()
	if err := b.err(); err != nil {
		return Jobs{}, err
	}
	return b.jobs, nil
}

// join marks the jobs of a batch in which the end of one matters to another.
func (b *batch) join() {
	joined := len(b.jobs.Workflow.Teams) > 0 || len(b.jobs.Workflow.Pipelines) > 0
	for i := range b.jobs.Specs {
		joined = joined || !b.jobs.Specs[i].Flow.Alone()
	}
	for i := range b.jobs.Specs {
		b.jobs.Specs[i].Flow.Joined = joined
	}
}

// err returns the mistakes in all files so far, in the order of the files.
func (b *batch) err() error {
	errs := make([]error, len(b.sources))
	for i, s := range b.sources {
		if errs[i] = s.err; s.err == nil {
			errs[i] = s.doc.Err()
		}
	}
	return strictyaml.Join(errs...)
}

var errTooLarge = errors.New("is too large")

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	data, err := strictyaml.ReadFile(path, limit)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}
