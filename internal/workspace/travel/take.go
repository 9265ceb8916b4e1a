package travel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrMissing says that the mirror has not, or no longer, what a parcel builds on: it
// is to be packed again, for what the mirror has now.
var ErrMissing = errors.New("the mirror lacks commits that the parcel builds on")

// incoming begins the names of folders in a mirror of what is not a part of it yet.
const incoming = "incoming-"

// historical are flaws of old commits and trees that harm nobody and that repositories
// in use have, as git-fsck(1) calls them.
const historical = "zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore,missingNameBeforeEmail=ignore"

// Take takes a parcel into the mirror of its identity. bundle is not read if the
// parcel has none. What does not pass leaves nothing behind.
func (m *Mirror) Take(ctx context.Context, p Parcel, bundle io.Reader) error {
	if err := m.take(ctx, &p, bundle); err != nil {
		return fmt.Errorf("take commit %.12s: %w", p.Commit, err)
	}
	return nil
}

func (m *Mirror) take(ctx context.Context, p *Parcel, bundle io.Reader) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Format != m.format {
		return fmt.Errorf("its ids are of %s, those of the mirror of %s", p.Format, m.format)
	}
	limits := m.Limits.orDefaults()
	if p.Size > limits.Bundle {
		return &LimitError{Folder: "the parcel", What: "bytes in its bundle", Have: p.Size, Most: limits.Bundle}
	}
	if p.Size == 0 {
		return m.takeAgain(ctx, p)
	}
	dir, err := os.MkdirTemp(m.dir, incoming)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, err := spool(filepath.Join(dir, "bundle"), p, bundle)
	if err != nil {
		return err
	}
	defer file.Close()
	h, err := checkHeader(file, p)
	if err != nil {
		return err
	}
	held, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer held.release()
	git := m.git().under(held)
	have, err := git.commits(ctx, p.Prerequisites)
	if err != nil {
		return err
	}
	if len(have) < len(p.Prerequisites) {
		return ErrMissing
	}
	// It also finds that what the bundle builds on is reachable from refs.
	if err := git.run(ctx, nil, io.Discard, "bundle", "verify", "--quiet", file.Name()); err != nil {
		return errors.Join(ErrMissing, err)
	}
	if _, err := file.Seek(h.size, io.SeekStart); err != nil {
		return err
	}
	objects, err := m.unpack(ctx, git, dir, file, p)
	if err != nil {
		return err
	}
	if err := settle(objects, filepath.Join(m.dir, "objects", "pack")); err != nil {
		return err
	}
	return m.keep(ctx, held, p.Commit, p.Base)
}

// takeAgain takes a parcel that the mirror has.
func (m *Mirror) takeAgain(ctx context.Context, p *Parcel) error {
	held, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer held.release()
	// Not every commit among the objects has what it needs.
	if id, err := m.git().under(held).out(ctx, "for-each-ref", "--contains="+p.Commit, "--count=1", "--format=%(refname)"); err != nil || id == "" {
		return ErrMissing
	}
	if err := m.git().under(held).descends(ctx, p.Commit, p.Base); err != nil {
		return err
	}
	return m.keep(ctx, held, p.Commit, p.Base)
}

// spool writes the bundle into a file, and compares it with what was announced.
func spool(path string, p *Parcel, bundle io.Reader) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, hash), io.LimitReader(bundle, p.Size+1))
	switch {
	case err != nil:
		err = fmt.Errorf("read the bundle: %w", err)
	case n != p.Size:
		err = fmt.Errorf("the bundle has not the %d bytes that were announced", p.Size)
	case hex.EncodeToString(hash.Sum(nil)) != p.SHA256:
		err = fmt.Errorf("the bundle has the SHA-256 %x, announced was %s", hash.Sum(nil), p.SHA256)
	default:
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkHeader compares the head of a bundle with what was announced. No git reads a bundle
// whose head is not exactly that.
func checkHeader(f *os.File, p *Parcel) (header, error) {
	h, err := readHeader(f)
	if err != nil {
		return h, fmt.Errorf("read the bundle: %w", err)
	}
	if h.format != p.Format {
		return h, fmt.Errorf("the bundle has ids of %q, announced was %s", h.format, p.Format)
	}
	if len(h.refs) != 1 || h.refs[0] != [2]string{p.Commit, ref} {
		return h, fmt.Errorf("the bundle brings %.200q, announced was %s as %s alone", h.refs, p.Commit, ref)
	}
	if !slices.Equal(h.prerequisites, p.Prerequisites) {
		return h, fmt.Errorf("the bundle builds on %d other commits than were announced", len(h.prerequisites))
	}
	return h, nil
}

// unpack puts a pack into a folder of its own, checks every object of it, that nothing
// is missing and how large it is, and returns the folder of its files.
func (m *Mirror) unpack(ctx context.Context, git repository, dir string, pack io.Reader, p *Parcel) (string, error) {
	objects, err := m.quarantineIn(dir)
	if err != nil {
		return "", err
	}
	git = git.with("GIT_OBJECT_DIRECTORY=" + objects)
	err = git.run(ctx, pack, io.Discard, "index-pack", "--stdin", "--fix-thin", "--strict="+historical, fmt.Sprintf("--max-input-size=%d", p.Size))
	if err != nil {
		return "", fmt.Errorf("check the objects of the bundle: %w", err)
	}
	if err := git.descends(ctx, p.Commit, p.Base); err != nil {
		return "", err
	}
	if err := git.run(ctx, nil, io.Discard, "rev-list", "--objects", "--quiet", p.Commit, "--not", "--all"); err != nil {
		return "", fmt.Errorf("the bundle lacks objects: %w", err)
	}
	if _, err := git.read(ctx, p.Commit, m.Limits.orDefaults(), false); err != nil {
		return "", of("commit "+p.Commit, "", err)
	}
	return filepath.Join(objects, "pack"), nil
}

// descends wants a commit to be its base, or the only child of it, or without parents for
// the base "".
func (r repository) descends(ctx context.Context, commit, base string) error {
	have, err := r.commits(ctx, []string{commit})
	if err != nil {
		return err
	}
	if len(have) == 0 {
		return fmt.Errorf("commit %s is not among the objects", commit)
	}
	if commit == base {
		return nil
	}
	// Not git show: it compares the trees, which may take for ever.
	line, err := r.out(ctx, "rev-list", "--parents", "--max-count=1", commit)
	if err != nil {
		return err
	}
	_, parents, _ := strings.Cut(line, " ")
	if parents != base {
		return fmt.Errorf("commit %s has the parents %q, announced was the base %q", commit, parents, base)
	}
	return nil
}

// settle moves the files of packs to where they count: the index last, by which git
// finds the pack.
func settle(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, index := range []bool{false, true} {
		for _, e := range entries {
			if name := e.Name(); strings.HasPrefix(name, "pack-") && strings.HasSuffix(name, ".idx") == index {
				if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
