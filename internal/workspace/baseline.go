package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// baseGit returns a git that looks at the folder tree with the private git
// directory of a job and an index of its own.
func (m *Manager) baseGit(base, tree, index string, held heldLocks) git {
	return git{m: m, dir: tree, held: held, env: []string{
		"GIT_DIR=" + base, "GIT_WORK_TREE=" + tree, "GIT_INDEX_FILE=" + index,
	}}
}

func (m *Manager) basePath(rec *record) string { return filepath.Join(m.home(rec.Job), "base") }
func (m *Manager) startIndex(rec *record) string {
	return filepath.Join(m.home(rec.Job), "start.index")
}

// makeBase makes a private git directory at base. It reads the objects of the
// repository r and takes over how r turns files into objects, as configured
// now, before an agent can change it, but no filter of r's own unless filters of
// repositories are trusted. r may be nil. It returns what r's configuration says.
func (m *Manager) makeBase(ctx context.Context, base, tree string, r *repo, held heldLocks) (*repoConfig, error) {
	own := &repoConfig{files: userConfigFiles()}
	if err := removeAll(base); err != nil {
		return nil, err
	}
	g := git{m: m, dir: filepath.Dir(base), held: held}
	format := "sha1"
	if r != nil {
		format = r.Format
	}
	if _, err := g.out(ctx, "init", "--quiet", "--bare", "--template=", "--object-format="+format, base); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(base, "info"), 0o700); err != nil {
		return nil, err
	}
	config := []string{"core.bare", "false", "core.looseCompression", "1", "core.logAllRefUpdates", "false"}
	exclude := ""
	if r != nil {
		var err error
		if own, err = m.readConfig(ctx, r, held); err != nil {
			return nil, err
		}
		config = append(config, own.inherited(m.trustFilters)...)
		// git-lfs keeps what it has downloaded in the repository.
		if lfs := filepath.Join(r.Common, "lfs"); isDir(lfs) {
			config = append(config, "lfs.storage", lfs)
		}
		r.Promisor = own.promisor
		if err := os.WriteFile(filepath.Join(base, "objects", "info", "alternates"), []byte(alternates(r)), 0o600); err != nil {
			return nil, err
		}
		exclude, _ = readSmall(filepath.Join(r.Common, "info", "exclude")) // often missing
		if attributes, err := readSmall(filepath.Join(r.Common, "info", "attributes")); err == nil {
			if err := os.WriteFile(filepath.Join(base, "info", "attributes"), []byte(attributes), 0o600); err != nil {
				return nil, err
			}
		}
	}
	if err := appendConfig(filepath.Join(base, "config"), config); err != nil {
		return nil, err
	}
	lines := []string{exclude}
	for _, dir := range m.exclude {
		if rel, err := filepath.Rel(realOrSame(tree), dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			lines = append(lines, "/"+ignoreEscaper.Replace(filepath.ToSlash(rel))+"/")
		}
	}
	return own, os.WriteFile(filepath.Join(base, "info", "exclude"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// appendConfig adds name, value, … to a git configuration file. One `git
// config` for each would take longer than all the rest of makeBase.
func appendConfig(path string, config []string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(config) && err == nil; i += 2 {
		section, key := config[i], ""
		if dot := strings.LastIndexByte(section, '.'); dot >= 0 {
			section, key = section[:dot], section[dot+1:]
		}
		if name, sub, ok := strings.Cut(section, "."); ok { // filter.lfs.clean is clean of [filter "lfs"]
			section = name + ` "` + configEscaper.Replace(sub) + `"`
		}
		_, err = fmt.Fprintf(f, "[%s]\n\t%s = \"%s\"\n", section, key, configEscaper.Replace(config[i+1]))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

var configEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`)

// snapshot brings the index of g up to date with the folder and returns its
// tree. Only files below scope count, "" for all. It works like `git add
// --all` with two differences. It never runs git inside a repository that lies
// in the folder, because that would obey a configuration which the agent may
// have written; the files of a nested repository become plain files of the
// snapshot instead. And one file that cannot be read does not spoil the rest:
// it is returned in missed.
func (g git) snapshot(ctx context.Context, scope string, notes *[]string) (tree string, missed []string, err error) {
	args := func(a ...string) []string {
		if scope != "" {
			a = append(a, "--", scope)
		}
		return a
	}
	changed, err := g.list(ctx, args("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all")...)
	if err != nil {
		return "", nil, err
	}
	var gone, put, nested []string
	for i := 0; i+1 < len(changed); i += 2 {
		if changed[i] == "D" {
			gone = append(gone, changed[i+1])
		} else {
			put = append(put, changed[i+1])
		}
	}
	others, err := g.list(ctx, args("ls-files", "-z", "--others", "--exclude-standard")...)
	if err != nil {
		return "", nil, err
	}
	for _, p := range others {
		if strings.HasSuffix(p, "/") {
			nested = append(nested, p)
		} else {
			put = append(put, p)
		}
	}
	if err := g.feed(ctx, gone, "update-index", "-z", "--force-remove", "--stdin"); err != nil {
		return "", nil, err
	}
	put, large := g.withoutLarge(put, others)
	if err := g.bounded(put); err != nil {
		return "", nil, err
	}
	if missed, err = g.put(ctx, put); err != nil {
		return "", nil, err
	}
	missed = append(missed, large...)
	for _, p := range nested {
		more, err := g.putNested(ctx, p, notes)
		if err != nil {
			return "", nil, err
		}
		missed = append(missed, more...)
	}
	if len(others) > len(nested) {
		// git passes over names that would be dangerous on some system, such as
		// .GIT, without a failure: what is still untracked was not taken.
		again := args("ls-files", "-z", "--others", "--exclude-standard")
		if names := slices.DeleteFunc(slices.Clone(others), func(p string) bool { return strings.HasSuffix(p, "/") }); len(strings.Join(names, " ")) < maxNames {
			again = append([]string{"ls-files", "-z", "--others", "--exclude-standard", "--"}, names...)
		}
		left, err := g.list(ctx, again...)
		if err != nil {
			return "", nil, err
		}
		for _, p := range left {
			if known := func(m string) bool { return strings.HasPrefix(m, fmt.Sprintf("%q", p)) }; !strings.HasSuffix(p, "/") && !slices.ContainsFunc(missed, known) {
				missed = append(missed, fmt.Sprintf("%q: git does not accept this file name", p))
			}
		}
	}
	// The user's repository may be gone, and with it the files that nobody
	// changed; whether there are changes can be told without them.
	tree, err = g.out(ctx, "write-tree", "--missing-ok")
	return tree, missed, err
}

// maxNames bounds the names that are looked at one by one instead of all files, in
// bytes: every system takes a command line of that length.
const maxNames = 32 << 10

// put adds paths to the index and returns those that could not be, each with
// the reason. git gives up at the first that fails, without having added any,
// so the list is halved until the bad ones stand alone.
func (g git) put(ctx context.Context, paths []string) (missed []string, err error) {
	err = g.feed(ctx, paths, "update-index", "-z", "--add", "--remove", "--replace", "--stdin")
	if err == nil {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	if len(paths) == 1 {
		return []string{fmt.Sprintf("%q: %v", paths[0], err)}, nil
	}
	for _, half := range [][]string{paths[:len(paths)/2], paths[len(paths)/2:]} {
		more, err := g.put(ctx, half)
		if err != nil {
			return nil, err
		}
		if missed = append(missed, more...); len(missed) > 20 {
			return nil, fmt.Errorf("too many files cannot be read, e.g. %s", missed[0])
		}
	}
	return missed, nil
}

// putNested adds the files of the repository in the folder dir ("a/b/").
func (g git) putNested(ctx context.Context, dir string, notes *[]string) (missed []string, err error) {
	tree, missed, err := g.at(dir).emptyIndex().snapshot(ctx, "", notes)
	if err != nil {
		return nil, err
	}
	defer os.Remove(g.at(dir).emptyIndex().index())
	if err := g.run(ctx, nil, nil, "read-tree", "--prefix="+dir, tree); err != nil {
		return nil, err
	}
	*notes = append(*notes, fmt.Sprintf("%s is a git repository of its own: its files are compared, its history is not", strings.TrimSuffix(dir, "/")))
	for i := range missed {
		missed[i] = "in " + dir + " " + missed[i]
	}
	return missed, nil
}

// at returns g for a subfolder of its working tree.
func (g git) at(sub string) git {
	dir := filepath.Join(g.dir, sub)
	return g.with("GIT_WORK_TREE=" + dir).in(dir)
}

func (g git) in(dir string) git { g.dir = dir; return g }

// emptyIndex returns g with another index, which does not exist yet.
func (g git) emptyIndex() git {
	g.believed = false
	return g.with("GIT_INDEX_FILE=" + g.index() + "x")
}

// index returns the path of g's index.
func (g git) index() string {
	for i := len(g.env) - 1; i >= 0; i-- {
		if path, ok := strings.CutPrefix(g.env[i], "GIT_INDEX_FILE="); ok {
			return path
		}
	}
	return ""
}

var ignoreEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, ` `, `\ `)

// cQuote quotes a path as git does in its own files.
func cQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
