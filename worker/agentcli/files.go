package agentcli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Link makes path a symbolic link to target if target exists. A real file at
// path is left alone: the program put it there in an earlier attempt.
func Link(target, path string) error {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSymlink == 0 {
			return nil
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	target, err := filepath.Abs(target)
	if err != nil {
		return err
	}
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// MaxCopy bounds what Copy copies, in bytes.
const MaxCopy = 256 << 10

// Copy copies a regular file of the user's, e.g. standing instructions, to a private
// file of a run. It does nothing if there is none.
func Copy(from, to string) error {
	f, err := Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxCopy+1))
	if err != nil {
		return err
	}
	if len(data) > MaxCopy {
		return &worker.Failure{Class: job.Config,
			Message: fmt.Sprintf("%s has more than %d bytes, the most that a confined run is given of it", from, MaxCopy),
			Hint:    "shorten " + from}
	}
	return WriteFile(to, data)
}

// Share gives a run a file of the user's: a confined one a copy, others a link.
func Share(t *worker.Task, from, to string) error {
	if t.Confined {
		return Copy(from, to)
	}
	return Link(from, to)
}

// Regular reports whether a regular file is at path, or where a link there leads.
func Regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Open opens a regular file of a program's home. What ran there may have put
// anything in its place: a pipe would be waited for, a device never ends.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// maxOwn bounds what is read of a program's home, in bytes.
const maxOwn = 4 << 20

// ReadOwnJSON reads an object that a program has left in its home; nil if there is none. A link there is none: it may lead to
// what the run may not see.
func ReadOwnJSON(path string) map[string]json.RawMessage {
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var own map[string]json.RawMessage
	if data, err := io.ReadAll(io.LimitReader(f, maxOwn)); err != nil || json.Unmarshal(data, &own) != nil {
		return nil
	}
	return own
}

// ReadJSON reads an object of the user's, which errors call name: nil if there
// is no such file. plain, if not nil, makes JSON of what the file holds.
func ReadJSON(path, name string, plain func([]byte) []byte) (map[string]json.RawMessage, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the user's %s: %w", name, err)
	}
	if plain != nil {
		data = plain(data)
	}
	var users map[string]json.RawMessage
	if err := json.Unmarshal(data, &users); err != nil {
		return nil, &worker.Failure{Class: job.Config, Message: fmt.Sprintf("read the user's %s: %v", name, err), Hint: "repair " + path}
	}
	return users, nil
}

// TakeOver copies those of keys that users has.
func TakeOver[V any](own map[string]any, users map[string]V, keys ...string) {
	for _, key := range keys {
		if v, ok := users[key]; ok {
			own[key] = v
		}
	}
}

// SystemPrompt writes the task's system prompt to a file of that name in the
// scratch folder; path is "" if there is none.
func SystemPrompt(t *worker.Task, name string) (path string, err error) {
	if t.SystemPrompt == "" {
		return "", nil
	}
	path = filepath.Join(t.Scratch, name)
	return path, WriteFile(path, []byte(t.SystemPrompt))
}

// MakeFolders makes private folders of a run, and those below home that they are in. What an earlier attempt has put in the place
// of one, such as a link, is removed: what is written into the folder would be written where the link leads.
func MakeFolders(home string, paths ...string) error {
	for _, path := range paths {
		if err := makeFolder(home, path); err != nil {
			return fmt.Errorf("make private folder: %w", err)
		}
	}
	return nil
}

func makeFolder(home, path string) error {
	within, err := filepath.Rel(home, path)
	if err != nil || !filepath.IsLocal(within) {
		return fmt.Errorf("%s is not in %s", path, home)
	}
	at := home
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	for name := range strings.SplitSeq(within, string(filepath.Separator)) {
		at = filepath.Join(at, name)
		if info, err := os.Lstat(at); err == nil && !info.IsDir() {
			if err := os.Remove(at); err != nil {
				return err
			}
		}
		if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// WriteFile replaces a private file of a run, whatever an earlier attempt has put
// in its place: to write into a pipe would wait, and a link leads elsewhere.
func WriteFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // of mode 0600
	if err == nil {
		defer os.Remove(f.Name()) // fails once renamed, as it should
		_, err = f.Write(data)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	if err != nil {
		return fmt.Errorf("write the run's %s: %w", filepath.Base(path), err)
	}
	return nil
}

// WriteJSON writes v as a private file of a run.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write the run's %s: %w", filepath.Base(path), err)
	}
	return WriteFile(path, data)
}
