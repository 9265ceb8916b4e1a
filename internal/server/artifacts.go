package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// artifacts answers with files that attempts left.
type artifacts struct {
	entries entries
	folder  func(id job.ID, attempt int) string // of an attempt; nil means that there are none
	fetch   func(ctx context.Context, id job.ID, attempt int, name string) error
}

func (a artifacts) routes(r *router) {
	stream(r, route{id: "get-artifact", method: "GET", path: "/v1/jobs/{job}/attempts/{attempt}/artifacts/{name}", role: read, tag: "jobs",
		about: "Return the text of a file that an attempt left, such as patch or stdout.\nA patch or answer that was changed after the attempt ended is answered with artifact_changed."}, textType, a.get)
}

// here makes sure that a file is in the folder of its attempt, and returns its name there. One of an attempt that
// another host has seen the end of is brought here, by the name of the artifact.
func (a artifacts) here(ctx context.Context, attempt *job.Attempt, folder, file, name string) (string, error) {
	if a.fetch == nil || filepath.Base(name) != name {
		return file, nil
	}
	if filepath.IsLocal(file) {
		if _, err := os.Lstat(filepath.Join(folder, file)); err == nil {
			return file, nil
		}
	}
	if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
		return name, nil
	}
	return name, a.fetch(ctx, attempt.Job, attempt.Number, name)
}

const textType = "text/plain; charset=utf-8"

type artifactPath struct {
	jobPath
	Attempt int    `path:"attempt" minimum:"1" doc:"the number of the attempt, from 1"`
	Name    string `path:"name" doc:"the name in the attempt's outcome: patch, whole, stdout, stderr, answer"`
}

// get writes a file that the outcome of the attempt names, and no other: the
// file lies in the attempt's own folder, whatever links there are.
func (a artifacts) get(w http.ResponseWriter, r *http.Request, in *artifactPath) error {
	if a.folder == nil {
		return fmt.Errorf("artifacts: %w", errNoSuch)
	}
	e, err := a.entries.find(r.Context(), in.Job)
	if err != nil {
		return err
	}
	attempts, err := a.entries.store.Attempts(r.Context(), e.ID)
	if err != nil {
		return err
	}
	if in.Attempt > len(attempts) {
		return fmt.Errorf("attempt %d of job %s: %w: it has had %d", in.Attempt, e.Spec.Name, queue.ErrNotFound, len(attempts))
	}
	attempt := &attempts[in.Attempt-1]
	missing := fmt.Errorf("artifact %q of attempt %d of job %s: %w", in.Name, in.Attempt, e.Spec.Name, queue.ErrNotFound)
	if attempt.Outcome == nil {
		return missing
	}
	found, ok := attempt.Outcome.Artifact(in.Name)
	if !ok {
		return missing
	}
	folder := a.folder(attempt.Job, attempt.Number)
	name, err := filepath.Rel(folder, found.Path)
	if err != nil {
		return missing
	}
	if name, err = a.here(r.Context(), attempt, folder, name, in.Name); err != nil {
		return missing
	}
	plain, err := statedir.OpenWithin(folder, job.Artifact{Path: filepath.Join(folder, name)})
	if err != nil {
		return missing
	}
	info, err := plain.Stat()
	if err != nil || !info.Mode().IsRegular() {
		plain.Close()
		return missing
	}
	file, err := statedir.Checked(plain, found)
	if changed := (*statedir.ChangedError)(nil); errors.As(err, &changed) {
		// The answer names no path of this host.
		return newProblem("artifact_changed", http.StatusConflict, "artifact %q of attempt %d of job %s was changed after the attempt ended: found %s, recorded %s; do the job again",
			in.Name, in.Attempt, e.Spec.Name, changed.Found, changed.Recorded)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Type", textType)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox") // whatever a browser makes of it
	http.ServeContent(w, r, "", info.ModTime(), file)
	return nil
}
