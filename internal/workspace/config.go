package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// repoConfig is what the configuration of a repository itself says, without the
// user's global one. Agents can write it.
type repoConfig struct {
	items    [][2]string // name and value
	promisor string      // the remote of a partial clone
	// filters are those that only this configuration defines. The value says
	// whether a file may not go without.
	filters map[string]bool
	// user is user.name and user.email, wherever they are configured.
	user map[string]string
	// files are those of the user's and the system's configuration, and those that
	// they, or this one, name for git to read.
	files []string
}

// maxConfig bounds what git prints of a configuration, in bytes.
const maxConfig = 16 << 20

// readConfig reads the configuration of r.
func (m *Manager) readConfig(ctx context.Context, r *repo, held heldLocks) (*repoConfig, error) {
	g := r.at(m, held)
	if r.Top != "" {
		g = git{m: m, dir: r.Top, held: held}
	}
	// A small file that includes another many times makes a large configuration.
	listed := &head{max: maxConfig}
	err := g.run(ctx, nil, listed, "config", "--list", "--show-scope", "--show-origin", "-z")
	if listed.more {
		err = fmt.Errorf("it has more than %d bytes, with all that it includes", maxConfig)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration of %s: %w", r.Common, err)
	}
	words := strings.Split(string(listed.buf), "\x00")
	c := &repoConfig{filters: map[string]bool{}, user: map[string]string{}, files: userConfigFiles()}
	global := map[string]bool{}
	for i := 0; i+2 < len(words); i += 3 {
		name, value, _ := strings.Cut(words[i+2], "\n")
		own := words[i] == "local" || words[i] == "worktree"
		file := ""
		if !own {
			file = configFile(strings.TrimPrefix(words[i+1], "file:"))
		}
		if name == "core.excludesfile" || name == "core.attributesfile" {
			c.addFile(configFile(value))
		}
		c.addFile(file)
		if name == "user.name" || name == "user.email" {
			c.user[name] = value // the last one counts
		}
		filter, key := filterKey(name)
		if !own {
			if key == "clean" || key == "smudge" || key == "process" {
				global[filter] = true
			}
			continue
		}
		c.items = append(c.items, [2]string{name, value})
		switch remote, promisor := strings.CutSuffix(strings.TrimPrefix(name, "remote."), ".promisor"); {
		case key == "required":
			c.filters[filter] = value == "" || value == "true" || value == "yes" || value == "on" || value == "1"
		case key != "":
			if _, known := c.filters[filter]; !known {
				c.filters[filter] = false
			}
		case name == "extensions.partialclone":
			c.promisor = value
		case promisor && c.promisor == "":
			c.promisor = remote
		}
	}
	maps.DeleteFunc(c.filters, func(filter string, _ bool) bool { return global[filter] })
	return c, nil
}

func (c *repoConfig) addFile(path string) {
	if path != "" && !slices.Contains(c.files, path) {
		c.files = append(c.files, path)
	}
}

// filterKey splits "filter.NAME.KEY".
func filterKey(name string) (filter, key string) {
	rest, ok := strings.CutPrefix(name, "filter.")
	dot := strings.LastIndexByte(rest, '.')
	if !ok || dot < 0 {
		return "", ""
	}
	return rest[:dot], rest[dot+1:]
}

// inherited returns, as name, value, name, value, …, the settings that decide
// how a file becomes an object and back.
func (c *repoConfig) inherited(filters bool) (config []string) {
	for _, item := range c.items {
		switch name, value := item[0], item[1]; name {
		case "core.autocrlf", "core.eol", "core.safecrlf", "core.filemode", "core.symlinks", "core.ignorecase",
			"core.precomposeunicode", "core.protecthfs", "core.protectntfs",
			"core.excludesfile", "core.attributesfile", "core.bigfilethreshold",
			"core.sparsecheckout", "core.sparsecheckoutcone":
			config = append(config, name, value)
		default:
			if filters && strings.HasPrefix(name, "filter.") {
				config = append(config, name, value)
			}
		}
	}
	return config
}

// sparse reports whether files of the index may be missing on purpose.
func (c *repoConfig) sparse() bool {
	return slices.ContainsFunc(c.items, func(item [2]string) bool { return item[0] == "core.sparsecheckout" && item[1] != "false" })
}

// SetupError says why a repository cannot be worked in as it is, and what the
// user can do about that.
type SetupError struct {
	Reason, Hint string
	Err          error // what git said, if it did
}

func (e *SetupError) Error() string { return e.Reason + "; " + e.Hint }
func (e *SetupError) Unwrap() error { return e.Err }

func untrusted(repo, filter string, files []string) string {
	text := fmt.Sprintf("%q", files[0])
	if n := len(files) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("the filter %q of %s is defined by the repository's own configuration (%s), and its programs are not run", filter, text, repo)
}

// checkFilters looks for files of the index of g whose attributes name a filter
// that only the repository defines. Where such a file may not go without it, the
// error is a *FilterError; else a note says so. names limits it, none is all.
func (g git) checkFilters(ctx context.Context, c *repoConfig, r *repo, names []string) (notes []string, err error) {
	if g.m.trustFilters || len(c.filters) == 0 {
		return nil, nil
	}
	if names == nil {
		if names, err = g.list(ctx, "ls-files", "-z"); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	var b strings.Builder
	if err := g.run(ctx, strings.NewReader(strings.Join(names, "\x00")+"\x00"), &b, "check-attr", "-z", "--stdin", "filter"); err != nil {
		return nil, err
	}
	files := map[string][]string{}
	words := strings.Split(b.String(), "\x00") // PATH, "filter", VALUE
	for i := 0; i+2 < len(words); i += 3 {
		if _, ok := c.filters[words[i+2]]; ok {
			files[words[i+2]] = append(files[words[i+2]], words[i])
		}
	}
	for _, filter := range slices.Sorted(maps.Keys(files)) {
		if c.filters[filter] {
			return nil, &SetupError{
				Reason: untrusted(r.Common, filter, files[filter]),
				Hint:   fmt.Sprintf("if the program can be trusted, define it with `git config --global filter.%s.…`, or set workspace.trust_filters in the host's configuration", filter),
			}
		}
		notes = append(notes, untrusted(r.Common, filter, files[filter])+", so these files are as git stores them")
	}
	return notes, nil
}

// explain adds to an error of git what to do when it comes of objects that a
// partial clone lacks.
func (m *Manager) explain(ctx context.Context, r *repo, err error) error {
	var failed *gitError
	if !errors.As(err, &failed) {
		return err
	}
	if r.Promisor == "" {
		own, cerr := m.readConfig(ctx, r, nil)
		if cerr != nil || own.promisor == "" {
			return err
		}
		r.Promisor = own.promisor
	}
	for _, complaint := range []string{"unable to read", "missing", "bad object", "could not get object", "invalid object", "cannot read", "Needed a single revision", "Not a valid object name"} {
		if strings.Contains(failed.stderr, complaint) {
			return &SetupError{
				Reason: r.dir() + " is a partial clone and lacks objects that the job needs",
				Hint:   fmt.Sprintf("run `git -C %s fetch --refetch --no-filter %s`", r.dir(), r.Promisor), Err: err,
			}
		}
	}
	return err
}

// Bounds of what is remembered of a repository's settings.
const (
	maxSettings     = 2000
	maxSettingBytes = 1 << 20
)

// settings returns a hash of everything in the .git folder of r that decides
// what git does there: each value of its configuration by "config NAME", hooks
// and the like by their path below .git. c is its configuration as just read.
func settings(r *repo, c *repoConfig) map[string]string {
	all := map[string]string{}
	for _, item := range c.items {
		name := "config " + item[0]
		all[name] = shortHash(all[name] + item[1] + "\n")
	}
	for _, folder := range []string{"hooks", "info"} {
		_ = filepath.WalkDir(filepath.Join(r.Common, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if len(all) >= maxSettings {
				return fs.SkipAll
			}
			if rel, err := filepath.Rel(r.Common, path); err == nil {
				all[rel] = fileHash(path)
			}
			return nil
		})
	}
	if h := fileHash(filepath.Join(r.Objects, "info", "alternates")); h != "" {
		all["objects/info/alternates"] = h
	}
	return all
}

// fileHash describes a file by its kind, permissions and content.
func fileHash(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	text := info.Mode().String()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(path)
		text += to
	case !info.Mode().IsRegular() || info.Size() > maxSettingBytes:
		text += fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	default:
		b, _ := os.ReadFile(path)
		text += string(b)
	}
	return shortHash(text)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// changedSettings tells which settings of the repository differ from those that
// were remembered at the start. A run of isolation direct has nothing else in
// the folder, so there they count as files that it changed. It also tells what has
// become of the repository's stash.
func (m *Manager) changedSettings(ctx context.Context, rec *record, held heldLocks) (files []job.FileChange, notes []string, err error) {
	if rec.Repo == nil || rec.Settings == nil || !isDir(rec.Repo.Common) {
		return nil, nil, nil
	}
	c, err := m.readConfig(ctx, rec.Repo, held)
	if err != nil {
		// A configuration that git cannot read was changed, too.
		return []job.FileChange{{Path: ".git/config", Change: "modified"}},
			[]string{fmt.Sprintf("the configuration of %s cannot be read any more: %v", rec.Repo.Common, err)}, ctx.Err()
	}
	was, now := rec.Settings, settings(rec.Repo, c)
	for path := range was {
		if _, ok := now[path]; !ok {
			now[path] = ""
		}
	}
	var names []string
	for _, path := range slices.Sorted(maps.Keys(now)) { // info/refs is a list that gc writes
		if was[path] == now[path] || path == "info/refs" || rec.Spec.Isolation != job.Direct && everyday(path) {
			continue
		}
		change := job.FileChange{Path: ".git/" + path, Change: "modified"}
		name, isConfig := strings.CutPrefix(path, "config ")
		switch {
		case isConfig:
			change.Path = ".git/config"
			names = append(names, name)
		case was[path] == "":
			change.Change = "added"
		case now[path] == "":
			change.Change = "deleted"
		}
		if !isConfig {
			names = append(names, change.Path)
		}
		if !slices.Contains(files, change) {
			files = append(files, change)
		}
	}
	if len(names) > 0 {
		const most = 20
		more := ""
		if n := len(names) - most; n > 0 {
			names, more = names[:most], fmt.Sprintf(" and %d more", n)
		}
		notes = append(notes, fmt.Sprintf("the settings of the repository %s were changed while the job ran: %s%s; they can make git run programs, look at them before you use git there", rec.Repo.Common, strings.Join(names, ", "), more))
	}
	return files, append(notes, changedStash(rec)...), nil
}

// everyday reports whether a setting changes by plain use of git in a worktree.
func everyday(path string) bool {
	name, ok := strings.CutPrefix(path, "config ")
	return ok && (strings.HasPrefix(name, "branch.") || strings.HasPrefix(name, "submodule.") && (strings.HasSuffix(name, ".url") || strings.HasSuffix(name, ".active")))
}
