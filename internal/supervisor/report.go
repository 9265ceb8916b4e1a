package supervisor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
)

// Report is what is known of the crash of one core. Each is a file of its own, which
// is written as a whole or not at all.
type Report struct {
	ID        string       `json:"id"` // later ones sort behind earlier ones
	Time      time.Time    `json:"time"`
	Core      int          `json:"core"` // which of the scheduler's cores: 1, 2, …
	PID       int          `json:"pid"`
	Version   string       `json:"version,omitempty"` // absent: it did not get to say
	Cause     string       `json:"cause"`
	Exit      string       `json:"exit"` // how the process ended
	Uptime    job.Duration `json:"uptime"`
	Runs      []string     `json:"runs,omitempty"`       // tags of the runs that it had
	LastWords string       `json:"last_words,omitempty"` // what went wrong, in a line
	Stderr    string       `json:"stderr,omitempty"`     // the end of its log
	Dump      string       `json:"dump,omitempty"`       // the Go crash dump from its first line on
}

// KeptReports is how many reports are kept.
const KeptReports = 50

// reportSuffix ends the names of the files; before it stands the report's id.
const reportSuffix = ".json"

// Write keeps the report in the folder, which is made if it is not there, and
// removes the oldest beyond KeptReports.
func (r *Report) Write(dir string) error {
	if err := r.write(dir); err != nil {
		return fmt.Errorf("write crash report of agentcore %d: %w", r.PID, err)
	}
	return pruneReports(dir)
}

func (r *Report) write(dir string) error {
	if r.ID == "" || r.ID != filepath.Base(r.ID) {
		return fmt.Errorf("its id is %q", r.ID)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return statedir.WriteFile(filepath.Join(dir, r.ID+reportSuffix), append(data, '\n'))
}

// pruneReports removes the oldest reports beyond KeptReports: those whose ids sort first.
func pruneReports(dir string) error {
	names, err := reportFiles(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names[:max(0, len(names)-KeptReports)] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove old crash report: %w", err))
		}
	}
	return errors.Join(errs...)
}

// reportFiles lists the names of the reports, the oldest first; none if there is no
// folder.
func reportFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list crash reports: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), reportSuffix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Reports returns the reports in the folder, the newest first. Those that can be
// read are returned beside the error that tells of the others.
func Reports(dir string) ([]Report, error) {
	names, err := reportFiles(dir)
	if err != nil {
		return nil, err
	}
	var all []Report
	var errs []error
	for _, name := range names {
		r, err := readReport(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // pruned meanwhile
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b Report) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.ID, a.ID)) })
	return all, errors.Join(errs...)
}

func readReport(path string) (Report, error) {
	var r Report
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return Report{}, fmt.Errorf("read crash report %s: %w", path, err)
	}
	return r, nil
}

// Latest means the newest report.
const Latest = "latest"

// FindReport returns the report that ref means: its id, the beginning or the end of
// its id if no other has that, or Latest for the newest.
func FindReport(dir, ref string) (Report, error) {
	all, err := Reports(dir)
	if ref == Latest && len(all) > 0 {
		return all[0], nil
	}
	var found []Report
	for _, r := range all {
		if r.ID == ref {
			return r, nil
		}
		if ref != "" && (strings.HasPrefix(r.ID, ref) || strings.HasSuffix(r.ID, ref)) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Report{}, errors.Join(fmt.Errorf("no such crash report: %q", ref), err)
	}
	return Report{}, fmt.Errorf("several crash reports match: %q begins or ends %d ids", ref, len(found))
}
