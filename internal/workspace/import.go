package workspace

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of the objects that an agent's commits may have.
const (
	maxImportFiles = 50_000
	maxImportBytes = 512 << 20
)

var (
	looseFolder = regexp.MustCompile(`^[0-9a-f]{2}$`)
	looseName   = regexp.MustCompile(`^(?:[0-9a-f]{38}|[0-9a-f]{62})$`)
	packName    = regexp.MustCompile(`^pack-(?:[0-9a-f]{40}|[0-9a-f]{64})\.pack$`)
)

// importCommits brings the commit tip, which the agent made in its worktree, into
// the user's repository, with all that it needs. The agent's files of objects are
// copied into a git directory of ours, and nothing else of its git directory: no
// setting, no index of a pack, no alternates. There git packs what belongs to tip.
// The user's repository takes the pack like one from a stranger: git computes every
// name anew, checks every object (--strict) and wants all that they refer to.
func (m *Manager) importCommits(ctx context.Context, rec *record, tip string, held heldLocks) error {
	user := rec.Repo.at(m, held)
	if lacks, err := user.lacking(ctx, []string{tip}); err != nil || !lacks[0] {
		return err
	}
	dir := filepath.Join(m.home(rec.Job), "import")
	if err := removeAll(dir); err != nil {
		return err
	}
	defer removeAll(dir)
	config := "[core]\n\trepositoryformatversion = 0\n"
	if rec.Repo.Format == "sha256" {
		config = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
	}
	files := map[string]string{"config": config, "HEAD": "ref: refs/heads/none\n", "refs/none": "", "objects/info/alternates": alternates(rec.Repo), "objects/pack/none": ""}
	if shallow, err := readSmall(filepath.Join(rec.Repo.Common, "shallow")); err == nil {
		files["shallow"] = shallow
	}
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if filepath.Base(name) == "none" {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	own, err := m.openOwnGit(rec)
	if err != nil {
		return err
	}
	defer own.close()
	packs, err := own.copyObjects(ctx, filepath.Join(dir, "objects"))
	if err != nil {
		return err
	}
	// A file of a few bytes can claim to be an object of any size.
	g := git{m: m, dir: dir, held: held, env: []string{"GIT_DIR=" + dir, "GIT_ALLOC_LIMIT=1g", "GIT_NO_REPLACE_OBJECTS=1"}}
	reads, err := m.readsOf(ctx, rec, held)
	if err != nil {
		return err
	}
	g = g.within(reads, []string{dir})
	for _, pack := range packs {
		if err := g.run(ctx, nil, new(bytes.Buffer), "index-pack", pack); err != nil {
			return err
		}
	}
	pack, err := os.Create(filepath.Join(dir, "all.pack"))
	if err != nil {
		return err
	}
	defer pack.Close()
	want := strings.NewReader(tip + "\n^" + rec.StartCommit + "\n")
	out := bufio.NewWriter(&limited{pack, maxImportBytes})
	if err := g.run(ctx, want, out, "pack-objects", "--quiet", "--revs", "--local", "--stdout", "--window=0"); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := user.with("GIT_ALLOC_LIMIT=1g").takePack(ctx, rec.Repo, reads, pack, "--strict"); err != nil {
		return err
	}
	if lacks, err := user.lacking(ctx, []string{tip}); err != nil || lacks[0] {
		return errors.Join(err, fmt.Errorf("commit %s is not among its objects", tip))
	}
	return nil
}

// takePack writes the objects of a pack into the repository r, of which g is a git: as
// git does with what it has fetched, few of them each into a file of its own. It may
// do no more there.
func (g git) takePack(ctx context.Context, r *repo, reads []string, pack *os.File, how ...string) error {
	g = g.within(append([]string{r.Common}, reads...), []string{r.Objects})
	const unpackLimit = 100
	var head [12]byte // "PACK", version, number of objects
	if _, err := pack.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("read a pack: %w", err)
	}
	if binary.BigEndian.Uint32(head[8:]) > unpackLimit {
		return g.run(ctx, pack, new(bytes.Buffer), append([]string{"index-pack", "--stdin"}, how...)...)
	}
	return g.run(ctx, pack, nil, append([]string{"unpack-objects", "-q"}, how...)...)
}

// copyObjects copies the files of objects into the folder to, and returns the
// packs among them.
func (o *ownGit) copyObjects(ctx context.Context, to string) (packs []string, err error) {
	files, left := 0, int64(maxImportBytes)
	err = fs.WalkDir(o.root.FS(), ".git/objects", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if files++; files > maxImportFiles {
			return fmt.Errorf("the agent's git has more than %d files of objects", maxImportFiles)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		folder, name := filepath.Base(filepath.Dir(path)), d.Name()
		pack := folder == "pack" && packName.MatchString(name)
		if !d.Type().IsRegular() || !pack && !(looseFolder.MatchString(folder) && looseName.MatchString(name)) {
			return nil
		}
		if err := os.MkdirAll(filepath.Join(to, folder), 0o700); err != nil {
			return err
		}
		target := filepath.Join(to, folder, name)
		if pack {
			packs = append(packs, target)
		}
		n, err := o.copyFile(path, target, left)
		left -= n
		return err
	})
	return packs, err
}

// copyFile copies a file of at most that many bytes.
func (o *ownGit) copyFile(from, to string, most int64) (int64, error) {
	in, err := o.root.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, err // replaced since it was listed
	}
	if info.Size() > most {
		return 0, fmt.Errorf("the objects of the agent's git have more than %d MiB", maxImportBytes>>20)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.LimitReader(in, most))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// limited writes at most that many bytes.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return 0, errors.New("it is too large")
	}
	return l.w.Write(p)
}
