package travel

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/internal/workspace"
)

// repository is a git directory of ours.
type repository struct {
	m    *workspace.Manager
	dir  string
	env  []string
	args []string // go before those of each command
	held lock
	// write are the folders that a command is confined to; nil: it runs as the user.
	write []string
}

func (r repository) with(env ...string) repository {
	r.env = append(r.env[:len(r.env):len(r.env)], env...)
	return r
}

func (r repository) under(l lock) repository { r.held = l; return r }

func (r repository) run(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	return r.m.Git(ctx, workspace.Command{Dir: r.dir, Env: append([]string{"GIT_DIR=" + r.dir}, r.env...), Args: append(r.args[:len(r.args):len(r.args)], args...), In: in, Out: out, Held: r.held, Write: r.write})
}

// out returns what git printed, without the last newline.
func (r repository) out(ctx context.Context, args ...string) (string, error) {
	var b bytes.Buffer
	err := r.run(ctx, nil, &b, args...)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// commits returns those of the ids that the repository has and that are commits.
func (r repository) commits(ctx context.Context, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	if err := r.run(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), &b, "cat-file", "--batch-check=%(objecttype) %(objectname)"); err != nil {
		return nil, err
	}
	var have []string
	for line := range strings.Lines(b.String()) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "commit "); ok {
			have = append(have, id)
		}
	}
	return have, nil
}

// file is a file of a tree.
type file struct {
	path string
	size int64
}

// contents is what a tree holds.
type contents struct {
	files      int
	bytes      int64
	largest    []file   // by size, at most 5
	submodules []string // paths
	small      []blob   // what has the size of a pointer of Git LFS
	paths      []string // all, if asked for
}

type blob struct{ id, path string }

// Of the pointers of Git LFS: git-lfs/docs/spec.md.
const (
	lfsHeader = "version https://git-lfs.github.com/spec/v1\n"
	minLFS    = 110
	maxLFS    = 200
)

// read lists the tree of a commit within bounds. The error of one that is beyond is a
// *LimitError with no folder.
func (r repository) read(ctx context.Context, tree string, limits Limits, paths bool) (*contents, error) {
	c := new(contents)
	l := &entries{do: func(line string) error {
		head, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(head) // MODE TYPE ID SIZE
		if len(f) != 4 {
			return fmt.Errorf("git ls-tree printed %q", line)
		}
		c.files++
		if paths {
			c.paths = append(c.paths, path)
		}
		if f[1] == "commit" {
			c.submodules = append(c.submodules, path)
		}
		size, _ := strconv.ParseInt(f[3], 10, 64) // "-" of a submodule
		c.bytes += size
		if size >= minLFS && size <= maxLFS && f[0] != "120000" {
			c.small = append(c.small, blob{f[2], path})
		}
		c.largest = largest(c.largest, file{path, size})
		switch {
		case c.files > limits.Files:
			return &LimitError{What: "files", Have: int64(c.files), Most: int64(limits.Files), Largest: c.largest}
		case c.bytes > limits.Tree:
			return &LimitError{What: "bytes in its files", Have: c.bytes, Most: limits.Tree, Largest: c.largest}
		}
		return nil
	}}
	err := r.run(ctx, nil, l, "ls-tree", "-r", "-l", "-z", "--full-tree", tree)
	if l.err != nil {
		return nil, l.err
	}
	return c, err
}

// pointers returns the paths of those small files that are pointers of Git LFS.
func (r repository) pointers(ctx context.Context, small []blob) ([]string, error) {
	if len(small) == 0 {
		return nil, nil
	}
	var ids strings.Builder
	for _, b := range small {
		ids.WriteString(b.id + "\n")
	}
	var out bytes.Buffer
	if err := r.run(ctx, strings.NewReader(ids.String()), &out, "cat-file", "--batch=%(objectsize)"); err != nil {
		return nil, err
	}
	var found []string
	b := bufio.NewReader(&out)
	for _, s := range small {
		line, err := b.ReadString('\n')
		size, serr := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || serr != nil || size > maxLFS {
			return nil, fmt.Errorf("git cat-file printed %q of %s", line, s.path)
		}
		text := make([]byte, size+1)
		if _, err := io.ReadFull(b, text); err != nil {
			return nil, err
		}
		if bytes.HasPrefix(text, []byte(lfsHeader)) {
			found = append(found, s.path)
		}
	}
	return found, nil
}

// largest returns the five largest of all and f.
func largest(all []file, f file) []file {
	const most = 5
	if len(all) == most && f.size <= all[most-1].size {
		return all
	}
	all = append(all, f)
	slices.SortStableFunc(all, func(a, b file) int { return int(min(max(b.size-a.size, -1), 1)) })
	return all[:min(len(all), most)]
}

// entries is given what git prints with -z. The first error of do ends git.
type entries struct {
	do   func(string) error
	rest []byte
	err  error
}

// maxEntry bounds a line of ls-tree, in bytes: the path is as deep as its trees.
const maxEntry = 16 << 10

func (e *entries) Write(p []byte) (int, error) {
	n := len(p)
	for e.err == nil {
		i := bytes.IndexByte(p, 0)
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if len(e.rest)+len(part) > maxEntry { // in however many pieces it comes
			e.err = fmt.Errorf("a path of the tree has more than %d bytes", maxEntry)
			break
		}
		if i < 0 {
			e.rest = append(e.rest, p...)
			return n, nil
		}
		line := string(append(e.rest, p[:i]...))
		e.rest, p = e.rest[:0], p[i+1:]
		e.err = e.do(line)
	}
	return 0, e.err
}

// LimitError says that something is too large to travel.
type LimitError struct {
	Folder     string // or the commit
	What       string // what is counted, e.g. "files"
	Have, Most int64
	Largest    []file
	Hint       string
}

func (e *LimitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has %d %s or more, at most %d can travel", e.Folder, e.Have, e.What, e.Most)
	for i, f := range e.Largest {
		if i == 0 {
			b.WriteString("; the largest files are ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q with %d bytes", f.path, f.size)
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// of names what an error of a bound is about.
func of(folder, hint string, err error) error {
	if limit := (*LimitError)(nil); errors.As(err, &limit) {
		limit.Folder, limit.Hint = folder, hint
		return limit
	}
	return err
}
