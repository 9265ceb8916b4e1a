package workspace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A worktree has a git directory of its own: the folder .git in it. It borrows the
// objects of the user's repository, and has copies of its branches, tags and remotes.
// So the agent can look at the history, commit, branch and stash, and nothing of
// that reaches the user's repository: neither a hook nor a setting, no ref, no
// stash entry. What the agent does there is read as bytes and never obeyed: no git
// of ours runs in it. The commits that are checked out in the end are copied (see
// importCommits).
//
// The user's repository knows nothing of the worktree but a ref, keepRef. It holds
// the start of the worktree, so that no `git gc` there removes borrowed objects.

// keepRef is the ref that keeps the start of a job in the user's repository. It does
// not end like the job's branch does: "git merge agentsched/NAME" would take it.
func keepRef(rec *record) string { return "refs/agentsched-start/" + rec.Folder }

// Bounds of what a worktree gets of the user's refs and settings.
const (
	maxRefs     = 20_000
	maxInherits = 1000 // settings of remotes and branches
)

// userRefs are the refs of a repository.
type userRefs struct {
	packed   string            // as in a file packed-refs
	symbolic map[string]string // e.g. refs/remotes/origin/HEAD, and what it leads to
	taken    bool              // a branch agentsched leaves no room for branches below it
}

// listRefs lists branches, then those of remotes, then tags, up to maxRefs.
func (g git) listRefs(ctx context.Context) (*userRefs, error) {
	text, err := g.out(ctx, "for-each-ref", fmt.Sprintf("--count=%d", maxRefs), "--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/remotes", "refs/tags")
	if err != nil {
		return nil, err
	}
	refs := &userRefs{symbolic: map[string]string{}}
	var b strings.Builder
	b.WriteString("# pack-refs with: sorted \n")
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3:
			refs.symbolic[f[1]] = f[2]
		case len(f) == 2:
			refs.taken = refs.taken || f[1] == "refs/heads/agentsched"
			b.WriteString(f[0] + " " + f[1] + "\n")
		}
	}
	refs.packed = b.String()
	return refs, nil
}

// without returns refs.packed without one of them.
func (refs *userRefs) without(ref string) string {
	before, after, found := strings.Cut(refs.packed, " "+ref+"\n")
	if !found {
		return refs.packed
	}
	return before[:strings.LastIndexByte(before, '\n')+1] + after
}

// makeOwnGit makes the git directory of rec's worktree at dir, with HEAD at commit,
// on the job's branch if it has one. own is what the user's configuration says.
func (m *Manager) makeOwnGit(rec *record, dir, commit string, own *repoConfig, refs *userRefs) error {
	r := rec.Repo
	branch := "refs/heads/" + rec.Branch
	packed := refs.packed
	if rec.Branch != "" {
		packed = refs.without(branch)
	}
	files := map[string]string{
		"config": "", "HEAD": "ref: " + branch + "\n", "packed-refs": packed,
		"objects/info/alternates": alternates(r), "objects/pack/": "", "refs/tags/": "", branch: commit + "\n",
	}
	if rec.Branch == "" {
		files["HEAD"] = commit + "\n"
		delete(files, branch)
	}
	for from, to := range refs.symbolic {
		if strings.HasPrefix(from, "refs/remotes/") && filepath.IsLocal(from) {
			files[from] = "ref: " + to + "\n"
		}
	}
	for _, name := range []string{"shallow", "info/grafts", "info/exclude", "info/attributes"} {
		if text, err := readSmall(filepath.Join(r.Common, name)); err == nil {
			files[name] = text
		}
	}
	if own.sparse() {
		if text, err := sparsePatterns(r); err == nil {
			files["info/sparse-checkout"] = text
		}
	}
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o777); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			return err
		}
	}
	rec.Refs = shortHash(packed)
	return appendConfig(filepath.Join(dir, "config"), m.ownConfig(r, own))
}

// sparsePatterns returns those of the user's working tree.
func sparsePatterns(r *repo) (string, error) {
	dir := r.Common
	if r.Top != "" {
		if of, err := gitFolder(r.Top); err == nil {
			dir = of
		}
	}
	return readSmall(filepath.Join(dir, "info", "sparse-checkout"))
}

// ownConfig returns the configuration of a worktree's own git directory.
func (m *Manager) ownConfig(r *repo, own *repoConfig) []string {
	version := "0"
	config := []string{"core.bare", "false", "core.logallrefupdates", "true"}
	if r.Format == "sha256" {
		version = "1"
		config = append(config, "extensions.objectformat", r.Format)
	}
	for _, key := range []string{"user.name", "user.email"} {
		if value := own.user[key]; value != "" {
			config = append(config, key, value)
		}
	}
	config = append(config, own.inherited(m.trustFilters)...)
	promisor, left := false, maxInherits
	for _, item := range own.items {
		name, value := item[0], item[1]
		section, rest, _ := strings.Cut(name, ".")
		key := rest[strings.LastIndexByte(rest, '.')+1:]
		ok := false
		switch section {
		case "remote":
			switch key {
			case "url", "pushurl":
				value, ok = remoteURL(value)
				promisor = promisor || ok && rest == own.promisor+".url"
			case "fetch", "promisor", "partialclonefilter":
				ok = true
			}
		case "branch":
			ok = key == "remote" || key == "merge"
		}
		if ok && left > 0 {
			left--
			config = append(config, name, value)
		}
	}
	if own.promisor != "" && promisor { // what the clone lacks is fetched in the run, if that may
		version = "1"
		config = append(config, "extensions.partialclone", own.promisor)
	}
	return append([]string{"core.repositoryformatversion", version}, config...)
}

var scpAddress = regexp.MustCompile(`^(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9.-]+:[^:]`)

// remoteURL returns the address of a remote without passwords and tokens, and
// whether a worktree gets it: addresses of hosts and absolute paths.
func remoteURL(value string) (string, bool) {
	if !strings.Contains(value, "://") {
		return value, filepath.IsAbs(value) || scpAddress.MatchString(value)
	}
	u, err := url.Parse(value)
	if err != nil {
		return "", false
	}
	switch u.Scheme {
	case "ssh", "git+ssh", "ssh+git":
		if u.User != nil {
			u.User = url.User(u.User.Username())
		}
	case "https", "http", "git", "file":
		u.User = nil // a token can stand in the place of the user's name
	default:
		return "", false
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String(), true
}

// setHead moves the branch, or the detached HEAD, of a worktree that no agent has
// been in.
func (m *Manager) setHead(rec *record, commit string) error {
	name := "HEAD"
	if rec.Branch != "" {
		name = "refs/heads/" + rec.Branch
	}
	return os.WriteFile(filepath.Join(m.tree(rec), ".git", filepath.FromSlash(name)), []byte(commit+"\n"), 0o666)
}

// ownGit reads the git directory of a worktree, whatever an agent has made of it.
// It follows no link out of the worktree and reads bounded amounts.
type ownGit struct{ root *os.Root }

func (m *Manager) openOwnGit(rec *record) (*ownGit, error) {
	root, err := os.OpenRoot(m.tree(rec))
	return &ownGit{root}, err
}

func (o *ownGit) close() { o.root.Close() }

// whole reports whether the git directory is still the one that was made: the agent
// may have removed it, or put a repository of its own in its place.
func (o *ownGit) whole(r *repo) bool {
	for name, dir := range map[string]bool{".git": true, ".git/objects": true, ".git/refs": true, ".git/HEAD": false, ".git/config": false} {
		if info, err := o.root.Lstat(name); err != nil || info.IsDir() != dir || !dir && !info.Mode().IsRegular() {
			return false
		}
	}
	borrows, err := o.read("objects/info/alternates", 64<<10)
	return err == nil && (borrows == alternates(r) || borrows == cQuote(r.Objects)+"\n") // which earlier versions wrote
}

// alternates returns the file by which a git directory borrows the objects of r. The path is quoted only where it must be:
// git clone copies the file of the repository that it clones, and takes a quoted path for a relative one.
func alternates(r *repo) string {
	if strings.ContainsFunc(r.Objects, func(c rune) bool { return c < ' ' }) {
		return cQuote(r.Objects) + "\n"
	}
	return r.Objects + "\n"
}

func (o *ownGit) read(name string, most int64) (string, error) {
	f, err := o.root.OpenFile(filepath.Join(".git", filepath.FromSlash(name)), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return "", cmp.Or(err, fmt.Errorf("%s is not a file of at most %d bytes", name, most))
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	return string(b), err
}

// packed returns the file packed-refs.
func (o *ownGit) packed() string {
	const most = 16 << 20
	text, _ := o.read("packed-refs", most) // there need not be one
	return text
}

// at returns the commit that a ref, or HEAD, names; "" if there is none.
func (o *ownGit) at(ref string) string {
	for range 5 { // symbolic refs, as git bounds them
		text, err := o.read(ref, 4<<10)
		if err != nil {
			for line := range strings.Lines(o.packed()) {
				if id, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref && objectID.MatchString(id) {
					return id
				}
			}
			return ""
		}
		text = strings.TrimSpace(text)
		to, symbolic := strings.CutPrefix(text, "ref: ")
		if !symbolic {
			if objectID.MatchString(text) {
				return text
			}
			return ""
		}
		if ref = to; !filepath.IsLocal(filepath.FromSlash(ref)) {
			return ""
		}
	}
	return ""
}

// tip returns the commit that is checked out; without one, that of the job's
// branch; "" if that is gone, too.
func (o *ownGit) tip(rec *record) string {
	if id := o.at("HEAD"); id != "" {
		return id
	}
	return o.at("refs/heads/" + rec.Branch)
}

// maxLeft bounds how much is looked at of the branches and stash entries that an
// agent has made.
const maxLeft = 1000

// heads returns the agent's own branches and where they are.
func (o *ownGit) heads(rec *record) map[string]string {
	heads := map[string]string{}
	add := func(ref, id string) {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok && len(heads) < maxLeft && objectID.MatchString(id) {
			if _, known := heads[name]; !known {
				heads[name] = id
			}
		}
	}
	looked := 0
	_ = fs.WalkDir(o.root.FS(), ".git/refs/heads", func(path string, d fs.DirEntry, err error) error {
		if looked++; looked > 10*maxLeft {
			return fs.SkipAll
		}
		if err == nil && d.Type().IsRegular() {
			ref := strings.TrimPrefix(path, ".git/")
			add(ref, o.at(ref))
		}
		return nil
	})
	if packed := o.packed(); shortHash(packed) != rec.Refs {
		for line := range strings.Lines(packed) {
			id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			add(name, id)
		}
	}
	return heads
}

// leftovers tells what an agent has left in its git directory that the user's
// repository does not hold: stash entries, and branches but one.
func (m *Manager) leftovers(ctx context.Context, rec *record, but string, held heldLocks) (notes []string, err error) {
	own, err := m.openOwnGit(rec)
	if err != nil {
		return nil, nil
	}
	defer own.close()
	tree := m.tree(rec)
	if log, err := own.read("logs/refs/stash", maxStash); err == nil {
		for _, e := range stashEntries(log) {
			id, title, _ := strings.Cut(e, " ")
			notes = append(notes, fmt.Sprintf("not part of the patch: %q, which is in the stash of %s; to apply it: git -C %s stash apply %s", title, tree, tree, id))
		}
	}
	heads := own.heads(rec)
	if id := own.at("HEAD"); id != "" && but == "" && !slices.Contains(slices.Collect(maps.Values(heads)), id) {
		heads["HEAD"] = id
	}
	var names, ask []string
	for name, id := range heads {
		if id != rec.StartCommit && id != rec.Stacked && name != but {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		ask = append(ask, heads[name])
	}
	lacks, err := rec.Repo.at(m, held).lacking(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if lacks[i] {
			notes = append(notes, fmt.Sprintf("not part of the patch: the branch %q of %s, which the agent has made", name, tree))
		}
	}
	const most = 10
	if n := len(notes) - most; n > 0 {
		notes = append(notes[:most], fmt.Sprintf("and %d more branches and stash entries of %s", n, tree))
	}
	return notes, nil
}

// lacking tells of each id whether the repository has no such commit.
func (g git) lacking(ctx context.Context, ids []string) (lacks []bool, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var b strings.Builder
	if err := g.run(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), &b, "cat-file", "--batch-check=%(objecttype)"); err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != len(ids) {
		return nil, fmt.Errorf("git tells of %d objects, not of %d", len(lines), len(ids))
	}
	for _, line := range lines {
		lacks = append(lacks, line != "commit")
	}
	return lacks, nil
}
