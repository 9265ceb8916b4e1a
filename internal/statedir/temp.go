package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Temp returns the folder for the temporary files of the run with this tag
// (job.RunTag). It lies in the system's folder for such files and not in the
// state directory, and its name is short, since a socket's path there may have
// 108 bytes at most, of which Chromium takes 45.
func (d *Dir) Temp(tag string) string {
	words := strings.Split(strings.TrimPrefix(strings.TrimPrefix(tag, string(d.info.Instance)), "/"), "/")
	for i, word := range words {
		const random = 12 // the end of an id is
		words[i] = word[max(0, len(word)-random):]
	}
	return filepath.Join(os.TempDir(), d.tempPrefix()+strings.Join(words, "-"))
}

// tempPrefix begins the name of every folder of Temp, and of no other
// directory's: the end of an instance id is its random part.
func (d *Dir) tempPrefix() string {
	id := string(d.info.Instance)
	return "agentsched-" + id[max(0, len(id)-8):] + "-"
}

// RemoveTemp removes the temporary files that runs have left: those with these
// tags, or with nil those of every run. None of the runs may be alive.
func (d *Dir) RemoveTemp(tags []string) error {
	var dirs []string
	for _, tag := range tags {
		dirs = append(dirs, d.Temp(tag))
	}
	var errs []error
	if tags == nil {
		entries, err := os.ReadDir(os.TempDir())
		errs = append(errs, err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), d.tempPrefix()) {
				dirs = append(dirs, filepath.Join(os.TempDir(), e.Name()))
			}
		}
	}
	for _, dir := range dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove temporary files of earlier runs: %w", err)
	}
	return nil
}
