package trigger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxFolders are watched by one trigger.
	maxFolders = 16 << 10
	// maxChanges are remembered by path until they fire.
	maxChanges = 10_000
	// patience is how many times Watch.Debounce a stream of changes may delay.
	patience = 10
)

var (
	// errLookAgain says that what is watched has changed itself.
	errLookAgain = errors.New("what is watched was removed, made or moved")
	// errOverflow says that changes were too many for the system.
	errOverflow = errors.New("changes came faster than they could be read")
)

// watcher is a trigger on files that runs.
type watcher struct {
	*source
	ignore  []string
	changes []Change
	quiet   time.Duration

	notify  *fsnotify.Watcher
	targets []target
	folders map[string]bool // that are watched

	pending map[string]Change // by path, not submitted yet
	more    bool              // and there are others
	since   time.Time         // when the first of them was seen
}

// runWatch fires for changes until ctx ends.
func (s *source) runWatch(ctx context.Context) {
	settings := s.settings.Watch
	w := &watcher{source: s, ignore: settings.Ignore, changes: settings.Changes, quiet: settings.Debounce.Std(), pending: map[string]Change{}}
	if w.ignore == nil {
		w.ignore = DefaultIgnore()
	}
	if w.changes == nil {
		w.changes = slices.DeleteFunc(Changes(), func(c Change) bool { return c == Chmod })
	}
	if w.quiet == 0 {
		w.quiet = DefaultDebounce.Std()
	}
	wait := retries()
	for {
		began := time.Now()
		err := w.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		// Until it is watched again nobody knows what happens.
		w.add("", "")
		if errors.Is(err, errLookAgain) {
			continue
		}
		s.failed(ctx, fmt.Errorf("watch files: %w", err))
		if time.Since(began) > lastRetry {
			wait.Reset()
		}
		if sleep(ctx, wait.NextBackOff()) != nil {
			return
		}
	}
}

// watch watches until something must be looked at anew.
func (w *watcher) watch(ctx context.Context) (err error) {
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		return explain(err)
	}
	defer w.notify.Close()
	w.targets, w.folders = nil, map[string]bool{}
	for _, path := range w.settings.Watch.Paths {
		t := newTarget(path, w.settings.Watch.Recursive)
		w.targets = append(w.targets, t)
		if err := w.enter(t.base, false); err != nil {
			return err
		}
	}
	w.show(func(st *state) { st.err = "" })
	w.log.Info().Int("folders", len(w.folders)).Msg("files are watched")
	fire := newAlarm()
	defer fire.stop()
	w.schedule(fire)
	wait := retries()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event := <-w.notify.Events:
			if err := w.seen(event); err != nil {
				return err
			}
			w.schedule(fire)
		case err := <-w.notify.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return errOverflow
			}
			return err
		case <-fire.due():
			if w.submit(ctx) != nil {
				fire.in(wait.NextBackOff())
			} else {
				wait.Reset()
			}
		}
	}
}

// enter watches a folder and, where a target is deep, those below it. With
// isNew the files found there count as created: they may have been before the
// folder was watched.
func (w *watcher) enter(dir string, isNew bool) error {
	deep := slices.ContainsFunc(w.targets, func(t target) bool { return t.deep && t.enters(dir, w.ignore) })
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path != dir || isNew && errors.Is(err, fs.ErrNotExist) {
				return nil // it is gone again, or nobody may look into it
			}
			return err
		}
		if isNew && path != dir {
			w.count(path, Create)
		}
		if !entry.IsDir() {
			if path == dir && !isNew {
				return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
			}
			return nil
		}
		if path != dir && (!deep || !slices.ContainsFunc(w.targets, func(t target) bool { return t.enters(path, w.ignore) })) {
			return filepath.SkipDir
		}
		if w.folders[path] {
			return nil
		}
		if len(w.folders) >= maxFolders {
			return fmt.Errorf("more than %d folders: watch fewer, or ignore some", maxFolders)
		}
		if err := w.notify.Add(path); err != nil {
			if path != dir || isNew {
				if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
					return nil
				}
			}
			return explain(err)
		}
		w.folders[path] = true
		return nil
	})
}

// explain adds what can be done about the system's limits.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: the system watches no more folders; raise fs.inotify.max_user_watches, or watch fewer", err)
	case errors.Is(err, syscall.EMFILE):
		return fmt.Errorf("%w; raise fs.inotify.max_user_instances or the limit on open files", err)
	}
	return err
}

// seen takes up what the system says.
func (w *watcher) seen(event fsnotify.Event) error {
	gone := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	for _, one := range []struct {
		op     fsnotify.Op
		change Change
	}{{fsnotify.Chmod, Chmod}, {fsnotify.Write, Write}, {fsnotify.Create, Create}, {fsnotify.Rename, Rename}, {fsnotify.Remove, Remove}} {
		if event.Has(one.op) {
			w.count(event.Name, one.change)
		}
	}
	for _, t := range w.targets {
		// A folder that is watched for itself came or went.
		if event.Name == t.base && gone || event.Name == t.path && t.path != t.base && event.Has(fsnotify.Create) && isDir(t.path) {
			return errLookAgain
		}
	}
	if gone && w.folders[event.Name] {
		// Moved away it would still be watched, under its old name.
		w.notify.Remove(event.Name) //nolint:errcheck // it may be gone already
		for dir := range w.folders {
			if dir == event.Name || strings.HasPrefix(dir, event.Name+"/") {
				w.notify.Remove(dir) //nolint:errcheck // likewise
				delete(w.folders, dir)
			}
		}
	}
	if event.Has(fsnotify.Create) && slices.ContainsFunc(w.targets, func(t target) bool { return t.deep && t.enters(event.Name, w.ignore) }) && isDir(event.Name) {
		return w.enter(event.Name, true)
	}
	return nil
}

// count notes a change if somebody wants it.
func (w *watcher) count(path string, change Change) {
	if slices.Contains(w.changes, change) && slices.ContainsFunc(w.targets, func(t target) bool { return t.wants(path, w.ignore) }) {
		w.add(path, change)
	}
}

// add notes a change; without a path, one that is not known.
func (w *watcher) add(path string, change Change) {
	if len(w.pending) == 0 && !w.more {
		w.since = time.Now()
	}
	before, known := w.pending[path]
	switch {
	case path == "" || !known && len(w.pending) >= maxChanges:
		w.more = true
	case before == Create && change == Write: // it is new all the same
	default:
		w.pending[path] = change
	}
}

// schedule sets the alarm for the end of the quiet time.
func (w *watcher) schedule(fire *alarm) {
	if len(w.pending) == 0 && !w.more {
		return
	}
	fire.in(max(min(w.quiet, time.Until(w.since.Add(patience*w.quiet))), 0))
}

// submit fires for what is pending.
func (w *watcher) submit(ctx context.Context) error {
	if len(w.pending) == 0 && !w.more {
		return nil
	}
	at := w.since.UTC().Round(0)
	f := Firing{ID: timedID(w.name, at), At: at, Event: w.text()}
	if _, err := w.fire(ctx, f, func(*record) {}); err != nil {
		return err
	}
	clear(w.pending)
	w.more = false
	return nil
}

// text lists the changes: "write /srv/app/main.go".
func (w *watcher) text() string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(w.pending)) {
		shown := path
		if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			shown = fmt.Sprintf("%q", path)
		}
		fmt.Fprintf(&b, "%s %s\n", w.pending[path], shown)
		if b.Len() > MaxEvent {
			break // eventText cuts the rest anyway
		}
	}
	if w.more {
		b.WriteString("and other changes\n")
	}
	return eventText(b.String())
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
