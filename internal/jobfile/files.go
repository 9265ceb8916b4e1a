package jobfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// Files are the only files that a job file from elsewhere may name, in
// instructions.file and agents_file. Its sender has other rights on this host
// than the process that reads it.
type Files struct {
	// Sent are texts that came with the job file, by the path as it names them.
	Sent map[string]string
	// Below is the absolute folder in which other files may lie; "" means none.
	// Symlinks that lead out of it are refused.
	Below string
}

// read returns at most limit bytes of the file that a job file names, and the
// name under which errors refer to it.
func (r *reader) read(given string, limit int64) (full string, data []byte, err error) {
	if r.opts.Files != nil {
		if text, sent := r.opts.Files.Sent[given]; sent {
			if int64(len(text)) > limit {
				return given, nil, tooLarge(limit)
			}
			return given, []byte(text), nil
		}
	}
	if full, err = r.absolute(given); err != nil {
		return given, nil, err
	}
	if r.opts.Files != nil {
		data, err = readBelow(r.opts.Files.Below, full, limit)
	} else {
		data, err = readFile(full, limit)
	}
	return full, data, err
}

// readBelow reads a regular file within a folder. The kernel's view of the path is
// what counts: os.Root opens each step of it without following a symlink out.
func readBelow(folder, full string, limit int64) ([]byte, error) {
	if folder == "" {
		return nil, errors.New("the scheduler reads no file of its host for a request; send the file's text in `files` of the request, as `scheduler submit` does")
	}
	rel, err := filepath.Rel(folder, full)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, fmt.Errorf("the scheduler reads only files below %s (api.files) for a request; send the file's text in `files` of the request, as `scheduler submit` does", folder)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the folder of api.files: %w", err)
	}
	defer root.Close() // only read: nothing can be lost
	// Without O_NONBLOCK, opening a pipe waits for its other end.
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, strictyaml.WithoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, strictyaml.WithoutPath(err)
	}
	if !info.Mode().IsRegular() {
		return nil, strictyaml.ErrNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, strictyaml.WithoutPath(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(limit)
	}
	return data, nil
}

func tooLarge(limit int64) error {
	return fmt.Errorf("%w: at most %d bytes are allowed", errTooLarge, limit)
}

// Attach reads the files that a job file names from this host, for a scheduler
// that is to read the job file elsewhere: see Files.Sent. Relative paths start from
// dir. It says nothing about other mistakes in the job file. Errors name the
// places of the references.
func Attach(name string, data []byte, dir string) (map[string]string, error) {
	b := newBatch(Options{})
	var f file
	doc := b.open(name, data, &f)
	base, err := filepath.Abs(dir)
	if doc == nil || err != nil {
		return nil, err
	}
	r := &reader{Doc: doc, file: name, base: base, batch: b}
	sent := map[string]string{}
	var errs []error
	attach := func(path, given string, limit int64) {
		if given == "" || sent[given] != "" {
			return
		}
		full, text, err := r.read(given, limit)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: cannot read %q (%s): %w", r.place(path), path, given, full, err))
			return
		}
		sent[given] = string(text)
	}
	attach("agents_file", f.AgentsFile, strictyaml.MaxBytes)
	for i := range f.Jobs {
		attach(fmt.Sprintf("jobs[%d].instructions.file", i), f.Jobs[i].Instructions.file, MaxInstructions)
	}
	return sent, errors.Join(errs...)
}

// Travelling returns the folders of this host that the jobs of a job file have worktrees
// of, as absolute paths, for a scheduler that is to read the job file elsewhere: see
// Options.Parcels. They are in git repositories. It says nothing about mistakes in the job
// file.
func Travelling(name string, data []byte, dir string) ([]string, error) {
	b := newBatch(Options{})
	var f file
	doc := b.open(name, data, &f)
	base, err := filepath.Abs(dir)
	if doc == nil || err != nil {
		return nil, err
	}
	r := &reader{Doc: doc, file: name, base: base, batch: b}
	var folders []string
	for i := range f.Jobs {
		if !travels(&f.Jobs[i]) {
			continue
		}
		full, err := r.absolute(f.Jobs[i].Workspace.Path)
		if info, serr := os.Stat(full); err == nil && serr == nil && info.IsDir() && insideGit(full) && !slices.Contains(folders, full) {
			folders = append(folders, full)
		}
	}
	return folders, nil
}

// travels reports whether a job has a worktree of a folder that it names.
func travels(e *entry) bool {
	w := e.Workspace
	return w != nil && w.Path != "" && w.Repo == "" && (w.Isolation == job.Worktree || w.Isolation == "" && e.Type != jobType(job.Maintenance))
}
