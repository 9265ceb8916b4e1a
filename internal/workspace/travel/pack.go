package travel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/workspace"
)

// ref is the one ref of a bundle.
const ref = "refs/agentsched/travel"

// Packed is a parcel and its bundle.
type Packed struct {
	Parcel
	Path string // of the bundle, "" if Size is 0
	dir  string
}

// Close removes the bundle.
func (p *Packed) Close() error { return os.RemoveAll(p.dir) }

// Packer packs folders of this host.
type Packer struct {
	Workspaces *workspace.Manager
	Temp       string // folder of the bundles while they are made and read, absolute; made when missing
	Limits     Limits
}

const ignoreHint = "add what need not travel to .gitignore"

// Identify says which repository a folder belongs to, so that the receiver can be
// asked what it has of that.
func (p *Packer) Identify(ctx context.Context, folder string) (Identity, error) {
	dir, err := p.temp()
	if err != nil {
		return Identity{}, err
	}
	defer os.RemoveAll(dir)
	s, err := p.Workspaces.Look(ctx, folder, filepath.Join(dir, "git"))
	if err != nil {
		return Identity{}, fmt.Errorf("pack %s: %w", folder, err)
	}
	id, err := p.identify(ctx, s)
	if err != nil {
		return Identity{}, fmt.Errorf("pack %s: %w", folder, s.Explain(ctx, err))
	}
	return id, nil
}

// Pack packs a folder for a receiver that has these commits. It may be a folder below
// the top of a repository: then the whole repository travels. The caller closes what
// it returns.
func (p *Packer) Pack(ctx context.Context, folder string, has []string) (_ *Packed, err error) {
	dir, err := p.temp()
	if err != nil {
		return nil, err
	}
	packed := &Packed{dir: dir}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := p.pack(ctx, folder, has, packed); err != nil {
		return nil, fmt.Errorf("pack %s: %w", folder, err)
	}
	return packed, nil
}

func (p *Packer) temp() (string, error) {
	if err := os.MkdirAll(p.Temp, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(p.Temp, "pack-")
}

func (p *Packer) pack(ctx context.Context, folder string, has []string, to *Packed) error {
	limits := p.Limits.orDefaults()
	changed := &LimitError{What: "bytes in files that are not committed", Most: limits.Bundle}
	count := 0
	s, err := p.Workspaces.Snapshot(ctx, folder, filepath.Join(to.dir, "git"), func(path string, size int64) error {
		changed.Have += size
		changed.Largest = largest(changed.Largest, file{path, size})
		if count++; count > limits.Files {
			return &LimitError{What: "files that are not committed", Have: int64(count), Most: int64(limits.Files), Largest: changed.Largest}
		}
		if changed.Have > limits.Bundle {
			return changed
		}
		return nil
	})
	if err != nil {
		return of(folder, ignoreHint, err)
	}
	git := repository{m: p.Workspaces, dir: s.GitDir, env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	if err := p.describe(ctx, git, s, to); err != nil {
		return of(folder, ignoreHint, s.Explain(ctx, err))
	}
	largestFiles, err := p.inspect(ctx, git, s, limits, to)
	if err != nil {
		return of(folder, ignoreHint, s.Explain(ctx, err))
	}
	for _, id := range has {
		if !isID(s.Format, id) {
			return fmt.Errorf("the receiver has %q, which is not a full id of %s", id, s.Format)
		}
	}
	if slices.Contains(has, to.Commit) {
		return nil
	}
	have, err := git.commits(ctx, has)
	if err != nil {
		return err
	}
	if slices.Contains(have, s.Head) {
		largestFiles = changed.Largest
	}
	if err := bundle(ctx, git, limits.Bundle, have, to); err != nil {
		if limit := (*LimitError)(nil); errors.As(err, &limit) {
			limit.Largest = largestFiles
		}
		return of(folder, ignoreHint, s.Explain(ctx, err))
	}
	return nil
}

// identify finds the roots of the commit that is checked out.
func (p *Packer) identify(ctx context.Context, s *workspace.Snapshot) (Identity, error) {
	id := Identity{Format: s.Format}
	if s.Head == "" {
		sum := sha256.Sum256([]byte(s.Top))
		id.Folder = hex.EncodeToString(sum[:])
		return id, nil
	}
	git := repository{m: p.Workspaces, dir: s.GitDir, env: []string{"GIT_NO_REPLACE_OBJECTS=1"}}
	roots, err := git.out(ctx, "rev-list", "--max-parents=0", s.Head)
	if err != nil {
		return id, err
	}
	id.Roots = strings.Fields(roots)
	slices.Sort(id.Roots)
	if len(id.Roots) > maxIDs {
		return id, fmt.Errorf("its history has %d beginnings, want at most %d; run `git fetch --unshallow`", len(id.Roots), maxIDs)
	}
	for _, r := range id.Roots {
		if slices.Contains(s.Shallow, r) {
			id.Shallow = append(id.Shallow, r)
		}
	}
	return id, nil
}

// describe makes the commit, and says what it is.
func (p *Packer) describe(ctx context.Context, git repository, s *workspace.Snapshot, to *Packed) error {
	id, err := p.identify(ctx, s)
	if err != nil {
		return err
	}
	to.Identity, to.Base, to.Sub, to.Warnings = id, s.Head, s.Sub, s.Notes
	for name, values := range conversions {
		value, err := git.out(ctx, "config", "--get", name)
		if err == nil && slices.Contains(values, strings.ToLower(value)) {
			if to.Convert == nil {
				to.Convert = map[string]string{}
			}
			to.Convert[name] = strings.ToLower(value)
		}
	}
	// One state makes one commit, whenever it is packed.
	date, args := "@0 +0000", []string{"commit-tree", "-m", "what is not committed"}
	if s.Head != "" {
		tree, err := git.out(ctx, "rev-parse", "--verify", s.Head+"^{tree}")
		if err != nil {
			return err
		}
		if tree == s.Tree {
			to.Commit = s.Head
		}
		line, err := git.out(ctx, "rev-list", "--timestamp", "--max-count=1", s.Head)
		if err != nil {
			return err
		}
		seconds, _, _ := strings.Cut(line, " ")
		date = "@" + seconds + " +0000"
		args = append(args, "-p", s.Head)
	}
	if to.Commit == "" {
		to.Commit, err = git.with(
			"GIT_AUTHOR_NAME=agentsched", "GIT_AUTHOR_EMAIL=agentsched@localhost", "GIT_AUTHOR_DATE="+date,
			"GIT_COMMITTER_NAME=agentsched", "GIT_COMMITTER_EMAIL=agentsched@localhost", "GIT_COMMITTER_DATE="+date,
		).out(ctx, append(args, s.Tree)...)
		if err != nil {
			return err
		}
	}
	return git.run(ctx, nil, nil, "update-ref", ref, to.Commit) // in our git directory
}

// inspect looks for what does not travel, and returns the largest files.
func (p *Packer) inspect(ctx context.Context, git repository, s *workspace.Snapshot, limits Limits, to *Packed) ([]file, error) {
	c, err := git.read(ctx, s.Tree, limits, false)
	if err != nil {
		return nil, err
	}
	pointers, err := git.pointers(ctx, c.small)
	if err != nil {
		return nil, err
	}
	warn := func(format string, paths []string) {
		for _, path := range paths {
			if len(to.Warnings) >= maxWarnings {
				to.Warnings = append(to.Warnings[:maxWarnings-1], fmt.Sprintf("and more; the tree has %d pointers of Git LFS and %d submodules", len(pointers), len(c.submodules)))
				return
			}
			to.Warnings = append(to.Warnings, fmt.Sprintf(format, path))
		}
	}
	warn("submodule %q is not carried: its folder is empty where the job runs", c.submodules)
	warn("%q is a pointer of Git LFS: its content is not carried", pointers)
	return c.largest, nil
}

// bundle writes the bundle.
func bundle(ctx context.Context, git repository, most int64, have []string, to *Packed) (err error) {
	to.Path = filepath.Join(to.dir, "bundle")
	f, err := os.OpenFile(to.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	revs := ref + "\n"
	for _, id := range have {
		revs += "^" + id + "\n"
	}
	w := &measured{w: f, hash: sha256.New(), most: most}
	err = git.run(ctx, strings.NewReader(revs), w, "bundle", "create", "--quiet", "-", "--stdin")
	if w.size > most {
		return &LimitError{What: "bytes in its bundle", Have: w.size, Most: most}
	}
	if err != nil {
		return err
	}
	to.Size, to.SHA256 = w.size, hex.EncodeToString(w.hash.Sum(nil))
	head, err := os.Open(to.Path)
	if err != nil {
		return err
	}
	defer head.Close()
	h, err := readHeader(head)
	to.Prerequisites = h.prerequisites
	if len(h.prerequisites) > maxIDs {
		return fmt.Errorf("the bundle builds on %d commits, want at most %d", len(h.prerequisites), maxIDs)
	}
	return err
}

// measured writes at most that many bytes.
type measured struct {
	w    io.Writer
	hash hash.Hash
	size int64
	most int64
}

func (m *measured) Write(p []byte) (int, error) {
	if m.size += int64(len(p)); m.size > m.most {
		return 0, errors.New("it is too large")
	}
	m.hash.Write(p)
	return m.w.Write(p)
}

// header is the head of a bundle; see gitformat-bundle(5).
type header struct {
	format        string
	prerequisites []string
	refs          [][2]string // id and name
	size          int64       // where the pack begins
}

// maxHeader bounds the head of a bundle, in bytes.
const maxHeader = 1 << 20

func readHeader(r io.Reader) (header, error) {
	h := header{format: "sha1"}
	b := make([]byte, maxHeader)
	n, err := io.ReadFull(r, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return h, err
	}
	b = b[:n]
	end := bytes.Index(b, []byte("\n\n"))
	if end < 0 {
		return h, errors.New("it is not a git bundle")
	}
	h.size = int64(end + 2)
	lines := strings.Split(string(b[:end]), "\n")
	if lines[0] != "# v2 git bundle" && lines[0] != "# v3 git bundle" {
		return h, fmt.Errorf("it begins with %.40q, want a git bundle of version 2 or 3", lines[0])
	}
	for _, l := range lines[1:] {
		switch {
		case strings.HasPrefix(l, "@object-format="):
			h.format = strings.TrimPrefix(l, "@object-format=")
		case strings.HasPrefix(l, "@"):
			return h, fmt.Errorf("it asks for %.80q, which no bundle of a workspace does", l)
		case strings.HasPrefix(l, "-"):
			id, _, _ := strings.Cut(l[1:], " ")
			if !isID(h.format, id) {
				return h, fmt.Errorf("it builds on %.80q, want a full id of %s", id, h.format)
			}
			h.prerequisites = append(h.prerequisites, id)
		default:
			id, name, ok := strings.Cut(l, " ")
			if !ok || !isID(h.format, id) {
				return h, fmt.Errorf("it has the line %.80q, want an id of %s and a ref", l, h.format)
			}
			h.refs = append(h.refs, [2]string{id, name})
		}
	}
	return h, nil
}
