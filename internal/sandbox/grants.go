package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// rights are what a run may do with a path, each more than the one before.
type rights int

const (
	hidden rights = iota
	readable
	writable
)

// grant allows a path: a file, or a folder with all below it.
type grant struct {
	path   string // a real path: no symbolic link in it
	rights rights
	names  bool // only the names of the folder's entries may be read
}

// maxGrants bounds what a policy comes to. Each is a system call or two at a run's start.
const maxGrants = 4096

// grants returns the policy's files as a list that only allows, for a kernel that cannot refuse. A folder below which
// something has fewer rights is replaced by its entries.
func (p *Policy) grants() ([]grant, error) {
	g, err := p.resolve()
	if err != nil {
		return nil, err
	}
	if err := g.add("/", hidden, g.paths); err != nil {
		return nil, err
	}
	return g.list, nil
}

// resolve finds the real paths of what the policy names.
func (p *Policy) resolve() (*granter, error) {
	g := &granter{named: make(map[string]rights), secret: make(map[string]bool)}
	var writes []string
	for _, path := range p.Write {
		if real, err := filepath.EvalSymlinks(path); err == nil { // else it is told below
			writes = append(writes, real)
		}
	}
	for _, list := range []struct {
		name   string
		paths  []string
		rights rights
	}{{"hide", p.Hide, hidden}, {"read", p.Read, readable}, {"write", p.Write, writable}} {
		for _, path := range list.paths {
			real, err := follow(path, func(link, _ string) error {
				// A run could grant its successor what it likes by such a link. What is hidden by one may be.
				folder := filepath.Dir(link)
				if list.rights != hidden && slices.ContainsFunc(writes, func(w string) bool { return folder == w || within(folder, w) }) {
					return fmt.Errorf("%s: %s is a symbolic link in a folder that runs may write: replace it by what it leads to", path, link)
				}
				return nil
			})
			if list.rights != writable && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("sandbox.%s: %w", list.name, err)
			}
			if _, ok := g.named[real]; !ok { // the strictest come first
				g.named[real] = list.rights
				g.paths = append(g.paths, real)
				if list.rights == hidden {
					info, err := os.Lstat(real)
					g.secret[real] = err != nil || info.IsDir()
				}
			}
		}
	}
	slices.SortFunc(g.paths, byFolder)
	return g, nil
}

// granter collects grants.
type granter struct {
	named  map[string]rights // what the policy names, by real path
	secret map[string]bool   // the folders among them that are hidden
	paths  []string          // its keys, sorted
	list   []grant
}

// add adds what there is at path and below it, given the rights of its folder and the named paths that are path or below.
func (g *granter) add(path string, r rights, named []string) error {
	if len(named) > 0 && named[0] == path {
		r, named = g.named[path], named[1:]
	}
	weaker, secret := false, false // something below has fewer rights; is a hidden folder
	for _, n := range named {
		weaker = weaker || g.named[n] < r
		secret = secret || g.secret[n]
	}
	if !weaker {
		if r != hidden {
			g.list = append(g.list, grant{path: path, rights: r})
		}
		// What has more rights. Of a hidden folder nothing is listed, so the next named path is gone to at once.
		for len(named) > 0 {
			n := below(named, named[0])
			if err := g.add(named[0], r, named[:n]); err != nil {
				return err
			}
			named = named[n:]
		}
		return nil
	}
	if !secret {
		g.list = append(g.list, grant{path: path, rights: readable, names: true})
	}
	entries, err := list(path)
	if err != nil && !errors.Is(err, fs.ErrPermission) { // what we cannot list, the run cannot either
		return fmt.Errorf("allow %s without what is hidden in it: %w", path, err)
	}
	for _, e := range entries {
		if len(g.list) > maxGrants {
			return fmt.Errorf("allow %s without what is hidden in it: this takes more than %d entries: hide something else, or use level strict", path, maxGrants)
		}
		if e.Type()&fs.ModeSymlink != 0 {
			continue // it leads to where it leads, which has rights of its own
		}
		child := filepath.Join(path, e.Name())
		i, _ := slices.BinarySearchFunc(named, child, byFolder)
		if err := g.add(child, r, named[i:i+below(named[i:], child)]); err != nil {
			return err
		}
	}
	return nil
}

// list returns the entries of a folder, at most a few more than can be allowed.
func list(path string) ([]fs.DirEntry, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxGrants + 2) // one more than fit, and the hidden one
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// byFolder sorts paths so that all below a folder follow it: a slash comes before every other byte.
func byFolder(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	switch {
	case i == len(a) || i == len(b):
		return len(a) - len(b)
	case a[i] == '/':
		return -1
	case b[i] == '/':
		return 1
	}
	return int(a[i]) - int(b[i])
}

// below returns how many of the sorted paths, from the first on, are path or below it.
func below(paths []string, path string) int {
	n := 0
	for n < len(paths) {
		rest, ok := strings.CutPrefix(paths[n], path)
		if !ok || rest != "" && rest[0] != '/' && path != "/" {
			break
		}
		n++
	}
	return n
}

// within says whether a path lies below a folder.
func within(path, folder string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// maxLinks bounds how many symbolic links one path is followed through, as the kernel does.
const maxLinks = 40

// follow returns the real path of path. Before it follows a symbolic link on the way, it calls each with the link, by a
// path that has no other in it, and with what the link holds. An error of each ends it.
func follow(path string, each func(link, target string) error) (string, error) {
	for range maxLinks {
		link, err := firstLink(path)
		if err != nil || link == "" {
			return path, err
		}
		target, err := os.Readlink(link)
		if err != nil {
			return "", err
		}
		if err := each(link, target); err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, strings.TrimPrefix(path, link))
	}
	return "", &fs.PathError{Op: "follow", Path: path, Err: errors.New("too many symbolic links")}
}

// firstLink is the first part of a path that is a symbolic link, or "". All of the path must exist.
func firstLink(path string) (string, error) {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != '/' {
			continue
		}
		info, err := os.Lstat(path[:end])
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return path[:end], nil
		}
	}
	return "", nil
}
