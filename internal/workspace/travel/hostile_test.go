package travel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stranger makes objects that no git would, and bundles of them.
type stranger struct {
	*hosts
	at string
}

func newStranger(h *hosts) *stranger {
	s := &stranger{h, filepath.Join(h.dir, "stranger")}
	h.git(h.dir, "init", "-q", "-b", "main", s.at)
	return s
}

func (s *stranger) blob(text string) string {
	return s.input(s.at, text, "hash-object", "-w", "--stdin")
}

// entry is one of a tree, as it is stored.
func entry(mode, name, id string) string {
	raw, _ := hex.DecodeString(id)
	return mode + " " + name + "\x00" + string(raw)
}

func (s *stranger) tree(entries ...string) string {
	return s.input(s.at, strings.Join(entries, ""), "hash-object", "-w", "--literally", "-t", "tree", "--stdin")
}

// commit makes one of a tree, a child of parents.
func (s *stranger) commit(tree string, parents ...string) string {
	args := []string{"commit-tree", "-m", "m", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return s.git(s.at, args...)
}

// parcel makes one of a bundle with these arguments.
func (s *stranger) parcel(commit, base string, args ...string) (Parcel, []byte) {
	path := filepath.Join(s.dir, "hostile.bundle")
	s.git(s.at, "update-ref", ref, commit)
	s.git(s.at, append([]string{"bundle", "create", "--quiet", path}, args...)...)
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return announced(commit, base, b), b
}

// all makes a parcel of all objects that there are.
func (s *stranger) all(commit, base string) (Parcel, []byte) {
	list := s.git(s.at, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
	b := []byte("# v2 git bundle\n" + commit + " " + ref + "\n\n" + s.raw(s.at, list+"\n", "pack-objects", "-q", "--stdout"))
	return announced(commit, base, b), b
}

func announced(commit, base string, bundle []byte) Parcel {
	sum := sha256.Sum256(bundle)
	p := Parcel{Identity: Identity{Format: "sha1"}, Start: Start{Commit: commit, Base: base}, Size: int64(len(bundle)), SHA256: hex.EncodeToString(sum[:])}
	if base == "" {
		p.Folder = strings.Repeat("0", 64)
	} else {
		p.Roots = []string{base}
	}
	if h, err := readHeader(bytes.NewReader(bundle)); err == nil {
		p.Prerequisites = h.prerequisites
	}
	return p
}

// refused wants a parcel to leave a mirror as it was.
func (s *stranger) refused(t *testing.T, m *Mirror, p Parcel, bundle []byte, want string) {
	t.Helper()
	before := everything(t, m.dir)
	err := m.Take(t.Context(), p, bytes.NewReader(bundle))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("take: %v, want %q", err, want)
	}
	if after := everything(t, m.dir); after != before {
		t.Errorf("the mirror had %d bytes and has %d", len(before), len(after))
	}
	if _, err := m.Checkout(t.Context(), p.Start, filepath.Join(s.dir, "there")); err == nil {
		t.Error("it can be checked out")
	}
	if entries, _ := os.ReadDir(filepath.Join(s.dir, "there")); len(entries) > 0 {
		t.Errorf("%v is checked out", entries)
	}
}

func TestHostileTrees(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for name, c := range map[string]struct {
		tree func(s *stranger) string
		want string
	}{
		".git": {func(s *stranger) string {
			return s.tree(entry("40000", ".git", s.tree(entry("100644", "config", s.blob("[core]\n")))))
		}, "hasDotgit"},
		".GIT": {func(s *stranger) string {
			return s.tree(entry("40000", ".GIT", s.tree(entry("100644", "config", s.blob("[core]\n")))))
		}, "hasDotgit"},
		"git~1": {func(s *stranger) string {
			return s.tree(entry("40000", "git~1", s.tree(entry("100644", "config", s.blob("[core]\n")))))
		}, "hasDotgit"},
		".git ignored": {func(s *stranger) string {
			return s.tree(entry("40000", ".g\u200cit", s.tree(entry("100644", "config", s.blob("[core]\n")))))
		}, "hasDotgit"},
		"below": {func(s *stranger) string {
			return s.tree(entry("40000", "a", s.tree(entry("100644", ".git", s.blob("gitdir: /\n")))))
		}, "hasDotgit"},
		"..": {func(s *stranger) string {
			return s.tree(entry("40000", "..", s.tree(entry("100644", "x", s.blob("x")))))
		}, "hasDotdot"},
		".": {func(s *stranger) string {
			return s.tree(entry("40000", ".", s.tree(entry("100644", "x", s.blob("x")))))
		}, "hasDot"},
		"a slash": {func(s *stranger) string { return s.tree(entry("100644", "../../x", s.blob("x"))) }, "fullPathname"},
		"no name": {func(s *stranger) string { return s.tree(entry("100644", "", s.blob("x"))) }, ""},
		"link and folder": {func(s *stranger) string {
			return s.tree(entry("120000", "a", s.blob(outside)), entry("40000", "a", s.tree(entry("100644", "x", s.blob("x")))))
		}, "duplicateEntries"},
		"twice": {func(s *stranger) string {
			return s.tree(entry("100644", "a", s.blob("1")), entry("100644", "a", s.blob("2")))
		}, "duplicateEntries"},
		"modules by a link": {func(s *stranger) string { return s.tree(entry("120000", ".gitmodules", s.blob("/etc/passwd"))) }, "gitmodulesSymlink"},
		"an address that is an option": {func(s *stranger) string {
			return s.tree(entry("100644", ".gitmodules", s.blob("[submodule \"a\"]\n\tpath = a\n\turl = -u./evil\n")))
		}, "gitmodulesUrl"},
		"a name that leads out": {func(s *stranger) string {
			return s.tree(entry("100644", ".gitmodules", s.blob("[submodule \"../../x\"]\n\tpath = a\n\turl = https://example.com/a\n")))
		}, "gitmodulesName"},
		"a path that is an option": {func(s *stranger) string {
			return s.tree(entry("100644", ".gitmodules", s.blob("[submodule \"a\"]\n\tpath = -a\n\turl = https://example.com/a\n")))
		}, "gitmodulesPath"},
		"a program to update by": {func(s *stranger) string {
			return s.tree(entry("100644", ".gitmodules", s.blob("[submodule \"a\"]\n\tpath = a\n\turl = https://example.com/a\n\tupdate = !touch x\n")))
		}, "gitmodulesUpdate"},
		"a tree as a file": {func(s *stranger) string {
			return s.tree(entry("100644", "a", s.tree(entry("100644", "x", s.blob("x")))))
		}, ""},
		"a bomb": {func(s *stranger) string {
			at := s.blob("x")
			mode := "100644"
			for range 9 {
				var entries []string
				for i := range 10 {
					entries = append(entries, entry(mode, fmt.Sprint("d", i), at))
				}
				at, mode = s.tree(entries...), "40000"
			}
			return at
		}, "200001 files or more"},
		"a path that has no end": {func(s *stranger) string {
			at := s.tree(entry("100644", "x", s.blob("x")))
			for range 120 {
				at = s.tree(entry("40000", strings.Repeat("d", 250), at))
			}
			return at
		}, "a path of the tree has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosts(t)
			s := newStranger(h)
			base := s.commit(s.tree(entry("100644", "fine", s.blob("1\n"))))
			commit := s.commit(c.tree(s), base)
			p, bundle := s.all(commit, base)
			s.refused(t, h.mirror(p.Identity), p, bundle, c.want)
		})
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a file outside was written")
	}
}

// TestLinksOutside: links stay links, and nothing is written through them.
func TestLinksOutside(t *testing.T) {
	h := newHosts(t)
	outside := filepath.Join(h.dir, "outside")
	h.write(outside, map[string]string{"x": "mine\n"})
	h.begin(map[string]string{"a/x": "1\n"})
	if err := errors.Join(os.RemoveAll(filepath.Join(h.repo, "a")), os.Symlink(outside, filepath.Join(h.repo, "a")), os.Symlink("../../..", filepath.Join(h.repo, "up"))); err != nil {
		t.Fatal(err)
	}
	_, p, c := h.travel(h.repo, "there")
	h.same(c)
	if to, err := os.Readlink(filepath.Join(c.Top, "a")); err != nil || to != outside {
		t.Errorf("a leads to %q, %v", to, err)
	}
	if b, _ := os.ReadFile(filepath.Join(outside, "x")); string(b) != "mine\n" {
		t.Errorf("the file outside is %q", b)
	}
	// A job does not begin behind a link.
	m := h.mirror(p.Identity)
	start := p.Start
	start.Sub = "up/b"
	if _, err := m.Checkout(t.Context(), start, filepath.Join(h.dir, "there2")); err == nil {
		t.Error("a folder behind a link is accepted")
	}
	if entries, _ := os.ReadDir(filepath.Join(h.dir, "there2")); len(entries) > 0 {
		t.Errorf("%v are left", entries)
	}
}

func TestHostileBundles(t *testing.T) {
	h := newHosts(t)
	s := newStranger(h)
	secret := s.blob("secret\n")
	base := s.commit(s.tree(entry("100644", "fine", s.blob("1\n"))))
	commit := s.commit(s.tree(entry("100644", "fine", s.blob("2\n"))), base)
	good, bundle := s.parcel(commit, base, ref)
	id := good.Identity
	m := h.mirror(id)

	s.git(s.at, "update-ref", "refs/heads/main", base)
	p, b := s.parcel(commit, base, ref, "main")
	s.refused(t, m, p, b, "announced was")
	p, b = s.parcel(commit, base, "main")
	s.refused(t, m, p, b, "announced was")
	for _, name := range []string{"refs/heads/main", "HEAD", "refs/kept/../../config", "refs/agentsched/travel\nrefs/x", "--upload-pack=touch x", "refs/agentsched/travel "} {
		b := bytes.Replace(bundle, []byte(" "+ref+"\n"), []byte(" "+name+"\n"), 1)
		s.refused(t, m, announced(commit, base, b), b, "")
	}
	// Another commit than the announced one.
	other := s.commit(s.tree(entry("100644", "fine", s.blob("3\n"))), base)
	p, b = s.parcel(other, base, ref)
	p.Commit = commit
	s.refused(t, m, p, b, "announced was")
	b = bytes.Replace(bundle, []byte(commit), []byte(other), 1)
	s.refused(t, m, announced(other, base, b), b, "is not among the objects")
	// Not a child of its base.
	p, b = s.parcel(commit, base, ref)
	p.Base, p.Roots = other, []string{other}
	s.refused(t, m, p, b, "announced was the base")
	p, b = s.parcel(s.commit(s.tree(), base, other), base, ref)
	s.refused(t, m, p, b, "announced was the base")
	p, b = s.parcel(commit, "", ref)
	s.refused(t, m, p, b, "announced was the base")
	// Not what was announced.
	p = good
	p.SHA256 = strings.Repeat("0", 64)
	s.refused(t, m, p, bundle, "the bundle has the SHA-256")
	for _, size := range []int64{good.Size - 1, good.Size + 1} {
		p.Size = size
		s.refused(t, m, p, bundle, "bytes that were announced")
	}
	p.Size = 2 << 30
	s.refused(t, m, p, bundle, "at most 1073741824 can travel")
	// Not a bundle, or one that asks for more.
	for text, want := range map[string]string{
		"":                       "want both of a bundle, or neither",
		"x":                      "is not a git bundle",
		"# v9 git bundle\n\n":    "want a git bundle of version 2 or 3",
		"# v2 git bundle\nx\n\n": "want an id of sha1 and a ref",
		"# v3 git bundle\n@filter=blob:none\n" + commit + " " + ref + "\n\n":          "it asks for",
		"# v3 git bundle\n@object-format=sha256\n" + commit + " " + ref + "\n\n":      "want an id of sha256",
		"# v2 git bundle\n" + commit + " " + ref + "\n\n":                             "check the objects",
		"# v2 git bundle\n" + commit + " " + ref + "\n\nPACK\x00\x00\x00\x02\xff\xff": "check the objects",
		"# v2 git bundle\n-main\n" + commit + " " + ref + "\n\n":                      "it builds on",
		string(bundle[:len(bundle)-30]):                                               "check the objects",
		string(bundle[:len(bundle)-30]) + strings.Repeat("x", 30):                     "check the objects",
	} {
		s.refused(t, m, announced(commit, base, []byte(text)), []byte(text), want)
	}
	// More objects than the commit needs do no harm, and fewer are refused.
	s.git(s.at, "update-ref", ref, commit)
	pack := s.raw(s.at, commit+"\n"+s.git(s.at, "rev-parse", commit+"^{tree}")+"\n", "pack-objects", "-q", "--stdout")
	b = []byte("# v2 git bundle\n" + commit + " " + ref + "\n\n" + pack)
	s.refused(t, m, announced(commit, base, b), b, "")
	// It builds on what the mirror has not.
	p, b = s.parcel(commit, base, ref, "^"+base)
	s.refused(t, m, p, b, ErrMissing.Error())
	p.Prerequisites = nil
	s.refused(t, m, p, b, "builds on")

	if err := m.Take(t.Context(), good, bytes.NewReader(bundle)); err != nil {
		t.Error(err)
	}
	if out, err := h.tryGit(m.dir, "", "cat-file", "-e", secret); err == nil {
		t.Errorf("an object that was not asked for is in the mirror: %s", out)
	}
	if refs := h.git(m.dir, "for-each-ref", "--format=%(refname)"); refs != "refs/kept/"+commit {
		t.Errorf("the refs are %s", refs)
	}
}

func TestHostileParcels(t *testing.T) {
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	good := func() Parcel {
		return Parcel{Identity: Identity{Format: "sha1", Roots: []string{a}}, Start: Start{Base: a, Commit: b}, Size: 1, SHA256: strings.Repeat("0", 64)}
	}
	for want, change := range map[string]func(*Parcel){
		"format is":              func(p *Parcel) { p.Format = "md5" },
		"commit is":              func(p *Parcel) { p.Commit = "HEAD" },
		"base is":                func(p *Parcel) { p.Base = "--all" },
		"roots[1] is":            func(p *Parcel) { p.Roots = append(p.Roots, "x") },
		"shallow names":          func(p *Parcel) { p.Shallow = []string{b} },
		"prerequisites names":    func(p *Parcel) { p.Prerequisites = make([]string, 1001) },
		"base and roots":         func(p *Parcel) { p.Roots = nil },
		"folder is":              func(p *Parcel) { p.Folder = a },
		`sub is "../x"`:          func(p *Parcel) { p.Sub = "../x" },
		`sub is "/etc"`:          func(p *Parcel) { p.Sub = "/etc" },
		`sub is "a/../b"`:        func(p *Parcel) { p.Sub = "a/../b" },
		`sub is ".git/hooks"`:    func(p *Parcel) { p.Sub = ".git/hooks" },
		"core.sshCommand":        func(p *Parcel) { p.Convert = map[string]string{"core.sshCommand": "touch x"} },
		`core.autocrlf is "x\ny`: func(p *Parcel) { p.Convert = map[string]string{"core.autocrlf": "x\ny"} },
		"size is":                func(p *Parcel) { p.SHA256 = "" },
	} {
		p := good()
		change(&p)
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p := good()
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestCollision(t *testing.T) {
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{"a", "b", "dir/a", "dir/b", "other/a"}, ""},
		{[]string{"a", "A"}, "a A"},
		{[]string{"dir/x", "Dir/y"}, "dir Dir"},
		{[]string{"dir/sub/x", "dir/SUB"}, "dir/sub dir/SUB"},
		{[]string{"ä", "Ä"}, "ä Ä"},
	} {
		a, b, found := collision(c.paths)
		if got := strings.TrimSpace(a + " " + b); got != c.want || found != (c.want != "") {
			t.Errorf("%q: %q %v, want %q", c.paths, got, found, c.want)
		}
	}
	if ignoresCase(t.TempDir()) {
		t.Skip("this file system ignores case")
	}
	// Where case counts, both are checked out.
	h := newHosts(t)
	h.begin(map[string]string{"a": "1\n", "A": "2\n"})
	_, _, c := h.travel(h.repo, "there")
	h.same(c)
}
