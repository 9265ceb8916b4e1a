package agentcore

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// What is kept of a session for another host is bounded: the bytes of its files, and how many they are.
const (
	maxSession      = 16 << 20
	maxSessionFiles = 1000
)

// sessionName is the name of the artifact's file, and aboutName that of the first entry in it.
const (
	sessionName = "session.tar"
	aboutName   = "agentsched.json"
)

// about says what a kept session is.
type about struct {
	Worker  job.WorkerKind `json:"worker"`
	Session string         `json:"session"`
	Dir     string         `json:"dir"` // where the agent worked
}

// keepSession keeps the files of the agent's session as an artifact of an attempt, so that the next one can go on with it
// on another host. Secrets are taken out of text; a session that holds one in a binary file is not kept.
func (e *execution) keepSession(ws *workspace.Workspace, dir string, o *job.Outcome) {
	if !e.submit.KeepSession || o.Session == "" || o.Succeeded() && e.submit.Spec.Flow.Oversight == nil {
		return
	}
	a, err := e.adapter()
	portable, ok := a.(worker.Portable)
	if err != nil || !ok {
		return
	}
	kept, err := e.packSession(portable.SessionFiles(o.Session), about{Worker: e.submit.Choice.Worker, Session: o.Session, Dir: ws.Dir})
	if err == nil {
		err = keepFile(o, job.ArtifactSession, filepath.Join(dir, sessionName), kept)
	}
	if err != nil {
		e.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("the agent's session is not kept, so that another host would start over: %v", err)})
	}
}

// packSession returns an archive of the files that match the patterns.
func (e *execution) packSession(patterns []string, of about) ([]byte, error) {
	root, err := os.OpenRoot(e.home())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names, err := sessionFiles(root.FS(), patterns, maxSessionFiles)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("the program has left no file of it")
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name string, data []byte) error {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}
	err = add(aboutName, text)
	for _, name := range names {
		if err != nil {
			return nil, err
		}
		var data []byte
		if data, err = readSession(root, name, maxSession-int64(buf.Len())); err == nil {
			data, err = e.withoutSecrets(name, data)
		}
		if err == nil {
			err = add(name, data)
		}
	}
	if err == nil {
		err = w.Close()
	}
	return buf.Bytes(), err
}

// sessionFiles returns the files that match the patterns, or are below folders that do, in order. What is no regular file
// is left out. More files than most are an error.
func sessionFiles(of fs.FS, patterns []string, most int) ([]string, error) {
	var names []string
	for _, pattern := range patterns {
		matches, err := fs.Glob(of, pattern)
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			err := fs.WalkDir(of, m, func(name string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					names = append(names, name)
				}
				if len(names) > most {
					return fmt.Errorf("it has more than %d files", most)
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// readSession reads a file of at most that many bytes. It is what the run left in its place, and that may be anything.
func readSession(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d MiB", maxSession>>20)
	}
	return data, err
}

// withoutSecrets takes the secrets out of a text.
func (e *execution) withoutSecrets(name string, data []byte) ([]byte, error) {
	clean := e.secrets.Bytes(data)
	if bytes.IndexByte(data, 0) >= 0 && !bytes.Equal(clean, data) {
		return nil, fmt.Errorf("%s holds a secret, and is no text", name)
	}
	return clean, nil
}

// carried is a session of another host, which this one has now.
type carried struct {
	about
	patch job.Patch
	moves bool // to a folder of another path
}

// takeSession gets the session that the run goes on with from the scheduler, if it is not here; nil if it is, or there is
// none. Where it cannot be had, the agent starts over, and a warning says why; the error is one that may pass.
func (e *execution) takeSession(ctx context.Context) (*carried, error) {
	s := &e.submit
	if s.Session == "" || !s.Elsewhere && (s.Carried == nil || isFolder(e.home())) {
		return nil, nil
	}
	c, err := e.fetchSession(ctx)
	var network *worker.Failure
	switch {
	case errors.As(err, &network), err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		e.startOver(err)
	}
	return c, nil
}

// startOver makes the agent begin anew.
func (e *execution) startOver(why error) {
	e.emit(job.Event{Kind: job.EventWarning, Text: fmt.Sprintf("the agent starts over: its session was on another host, and %v", why)})
	e.submit.Session, e.movedFrom = "", ""
	if err := os.RemoveAll(e.home()); err != nil { // of an older session, or what came of this one
		e.log.Warn().Err(err).Msg("empty the worker's private folder")
	}
}

func (e *execution) fetchSession(ctx context.Context) (*carried, error) {
	s := &e.submit
	if s.Carried == nil {
		return nil, errors.New("its files were not kept")
	}
	a, err := e.adapter()
	if err != nil {
		return nil, err
	}
	portable, ok := a.(worker.Portable)
	if !ok {
		return nil, fmt.Errorf("worker %s cannot go on with one elsewhere", s.Choice.Worker)
	}
	from := s.Carried.Session
	if most := int64(2 * maxSession); from.Bytes > most || from.SHA256 == "" {
		return nil, fmt.Errorf("what was kept of it has %d bytes, or no hash, and may have %d", from.Bytes, most)
	}
	at, err := e.fetch(ctx, "session", job.Patch{Job: s.Spec.Name, Path: from.Path, Bytes: from.Bytes, SHA256: from.SHA256})
	if err != nil {
		return nil, err
	}
	c := &carried{patch: s.Carried.Patch, moves: portable.Moves()}
	if c.patch.Path != "" {
		if c.patch.Path, err = e.fetch(ctx, "patch", c.patch); err != nil {
			return nil, err
		}
	}
	if c.about, err = unpackSession(at, e.home(), portable.SessionFiles(s.Session)); err != nil {
		return nil, err
	}
	if c.Session != s.Session || c.Worker != s.Choice.Worker {
		return nil, fmt.Errorf("what was kept is session %.100q of %.100q", c.Session, c.Worker)
	}
	return c, nil
}

// unpackSession makes home anew, with the files of an archive: those alone that the patterns allow.
func unpackSession(archive, home string, patterns []string) (of about, err error) {
	if err := os.RemoveAll(home); err != nil {
		return of, err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return of, err
	}
	root, err := os.OpenRoot(home)
	if err != nil {
		return of, err
	}
	defer root.Close()
	f, err := os.Open(archive)
	if err != nil {
		return of, err
	}
	defer f.Close()
	r := tar.NewReader(io.LimitReader(f, 2*maxSession))
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return of, errors.New("what was kept is empty")
			}
			return of, nil
		}
		if err != nil {
			return of, err
		}
		switch {
		case n == 0 && h.Name == aboutName:
			err = json.NewDecoder(io.LimitReader(r, 64<<10)).Decode(&of)
		case n > maxSessionFiles, h.Typeflag != tar.TypeReg, !fs.ValidPath(h.Name), !named(patterns, h.Name):
			err = fmt.Errorf("what was kept holds %.200q, which is no file of a session", h.Name)
		default:
			err = writeSession(root, h.Name, r)
		}
		if err != nil {
			return of, err
		}
	}
}

func writeSession(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// named reports whether a name, or a folder that it is in, matches one of the patterns.
func named(patterns []string, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			return true
		}
	}
	return false
}

// goOn brings a carried session's work into the workspace that was made for it. If that does not fit, the agent starts over.
func (e *execution) goOn(ctx context.Context, c *carried, ws *workspace.Workspace, again func() (*workspace.Workspace, error)) (*workspace.Workspace, error) {
	if c == nil {
		return ws, nil
	}
	if e.movedFrom = c.Dir; e.moved(ws) != "" && !c.moves {
		e.startOver(fmt.Errorf("it is of a folder that has another path here: %s instead of %s", ws.Dir, c.Dir))
		return ws, nil
	}
	if c.patch.Path != "" {
		if err := e.workspaces.Reapply(ctx, ws, c.patch); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			e.startOver(err)
			return again()
		}
	}
	e.emit(job.Event{Kind: job.EventWarning, Text: "the agent goes on with its session of another host; files that git ignores, and its commits, stayed there"})
	return ws, nil
}

// moved returns where the agent worked on another host, if that is another path than here; else "".
func (e *execution) moved(ws *workspace.Workspace) string {
	if e.movedFrom == ws.Dir {
		return ""
	}
	return e.movedFrom
}
