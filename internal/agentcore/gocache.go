package agentcore

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// GoCacheCommand is the argument with which the program is go's cache, see ServeGoCache. Two folders follow it.
const GoCacheCommand = "go-cache"

// goCacheRequest and goCacheAnswer are messages of go's cmd/go/internal/cacheprog, Go 1.24.
type goCacheRequest struct {
	ID                 int64
	Command            string
	ActionID, OutputID []byte
	BodySize           int64
}

type goCacheAnswer struct {
	ID            int64
	Err           string     `json:",omitempty"`
	KnownCommands []string   `json:",omitempty"`
	Miss          bool       `json:",omitempty"`
	OutputID      []byte     `json:",omitempty"`
	Size          int64      `json:",omitempty"`
	Time          *time.Time `json:",omitempty"`
	DiskPath      string     `json:",omitempty"`
}

// GoCacheMain is ServeGoCache on this process's standard streams. It returns the program's exit code.
func GoCacheMain(from, into string) int {
	if err := ServeGoCache(os.Stdin, os.Stdout, from, into); err != nil {
		fmt.Fprintln(os.Stderr, "agentcore:", err)
		return ExitFailure
	}
	return ExitOK
}

// ServeGoCache is a program that the variable GOCACHEPROG names. It keeps in the folder into whatever a go command asks for,
// laid out as go's own cache is: what the folder from has, a cache of go's, is copied, and what is built is added. So into
// has afterwards what that command needs and nothing else of from, which is not changed.
func ServeGoCache(in io.Reader, out io.Writer, from, into string) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(goCacheAnswer{KnownCommands: []string{"get", "put", "close"}}); err != nil {
		return err
	}
	requests := json.NewDecoder(bufio.NewReader(in))
	for {
		var q goCacheRequest
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request of go: %w", err)
		}
		a := goCacheAnswer{ID: q.ID}
		var err error
		switch q.Command {
		case "get":
			err = a.get(q, goCache(from), goCache(into))
		case "put":
			var body []byte
			if q.BodySize > 0 {
				if err := requests.Decode(&body); err != nil {
					return fmt.Errorf("read a file of go: %w", err)
				}
			}
			entry := goCacheEntry{output: q.OutputID, size: int64(len(body)), time: time.Now()}
			a.DiskPath, err = goCache(into).put(q.ActionID, entry, strings.NewReader(string(body)))
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := answers.Encode(a); err != nil || q.Command == "close" {
			return err
		}
	}
}

func (a *goCacheAnswer) get(q goCacheRequest, from, into goCache) error {
	entry, path := into.get(q.ActionID)
	if path == "" {
		if entry, path = from.get(q.ActionID); path == "" {
			a.Miss = true
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if path, err = into.put(q.ActionID, entry, f); err != nil {
			return err
		}
	}
	a.OutputID, a.Size, a.Time, a.DiskPath = entry.output, entry.size, &entry.time, path
	return nil
}

// goCache is a folder as go's cmd/go/internal/cache lays it out: a file HH/ACTION-a names an output, which is in HH/OUTPUT-d.
type goCache string

type goCacheEntry struct {
	output []byte
	size   int64
	time   time.Time
}

func (c goCache) file(id []byte, kind string) string {
	name := hex.EncodeToString(id)
	return filepath.Join(string(c), name[:min(2, len(name))], name+kind)
}

// get returns the output of an action; "" if there is none.
func (c goCache) get(action []byte) (e goCacheEntry, path string) {
	text, err := readBounded(c.file(action, "-a"), 1<<10)
	if err != nil {
		return e, ""
	}
	words := strings.Fields(text)
	if len(words) != 5 || words[0] != "v1" || words[1] != hex.EncodeToString(action) {
		return e, ""
	}
	output, oerr := hex.DecodeString(words[2])
	size, serr := strconv.ParseInt(words[3], 10, 64)
	nanos, terr := strconv.ParseInt(words[4], 10, 64)
	path = c.file(output, "-d")
	if info, err := os.Stat(path); errors.Join(err, oerr, serr, terr) != nil || !info.Mode().IsRegular() || info.Size() != size {
		return e, "" // a program that was linked is a folder
	}
	return goCacheEntry{output, size, time.Unix(0, nanos)}, path
}

// put adds an output and the action that it is of, and returns the output's path.
func (c goCache) put(action []byte, e goCacheEntry, data io.Reader) (string, error) {
	path := c.file(e.output, "-d")
	if err := place(path, data); err != nil {
		return "", err
	}
	line := fmt.Sprintf("v1 %x %x %20d %20d\n", action, e.output, e.size, e.time.UnixNano())
	return path, place(c.file(action, "-a"), strings.NewReader(line))
}

// place makes a file at once, with its folder.
func place(path string, data io.Reader) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func readBounded(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most))
	return string(data), err
}
