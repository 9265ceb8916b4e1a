//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// bubblewrap is a program bwrap and what it knows.
type bubblewrap struct {
	path     string
	noUserns bool // it can switch off user namespaces inside: since 0.8.0
}

// minBwrap is the oldest that has --ro-bind-try and --as-pid-1.
var minBwrap = [2]int{0, 4}

// bubblewrap finds the program. Its version is asked for by Probe only, since what prepares a run may start no other
// process (see package proc).
func (p *Policy) bubblewrap() (bubblewrap, error) {
	if p.Host == nil {
		path, err := lookBubblewrap()
		return bubblewrap{path: path}, err
	}
	return bubblewrap{path: p.Host.Bwrap, noUserns: !older(p.Host.Version, [2]int{0, 8})}, p.Host.Bubblewrap
}

func lookBubblewrap() (string, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return "", &Problem{"bubblewrap is not installed", installBubblewrap()}
	}
	return path, nil
}

// findBubblewrap looks for bubblewrap and asks for its version.
func findBubblewrap(ctx context.Context) (path, version string, err error) {
	if path, err = lookBubblewrap(); err != nil {
		return "", "", err
	}
	text, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return path, "", &Problem{fmt.Sprintf("%s --version: %v", path, err), installBubblewrap()}
	}
	version = strings.TrimPrefix(strings.TrimSpace(string(text)), "bubblewrap ")
	if older(version, minBwrap) {
		return path, version, &Problem{fmt.Sprintf("%s is version %s, and 0.4.0 or newer is needed", path, version), installBubblewrap()}
	}
	return path, version, nil
}

// older says whether a version such as "0.8.0" is older than another. What is no version is.
func older(version string, than [2]int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return true
	}
	return slices.Compare([]int{major, minor}, than[:]) < 0
}

// arguments are bubblewrap's for the policy, without the program. The init takes the place of process 1.
func (b bubblewrap) arguments(p *Policy) ([]string, error) {
	args := []string{
		"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "sandbox", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL",
	}
	if p.ownNetwork() {
		args = append(args, "--unshare-net")
	}
	if b.noUserns {
		args = append(args, "--disable-userns")
	}
	mounts, err := p.mounts()
	if err != nil {
		return nil, err
	}
	return append(args, mounts...), nil
}

// ownNetwork says whether the run gets a network of its own, with nothing but a loopback device.
func (p *Policy) ownNetwork() bool { return p.Level == Strict && !p.FullNetwork }

// made are the file systems that bubblewrap makes itself, whatever the policy says of them.
var made = []string{"/proc", "/dev"}

// mounts are bubblewrap's arguments for files. It begins with an empty root, and what comes later lies over what came
// before, so a folder comes before what is in it.
func (p *Policy) mounts() ([]string, error) {
	g, err := p.resolve()
	if err != nil {
		return nil, err
	}
	g.narrow("/sys", "/sys/devices/system") // the rest is about the host's devices, and has mounts of its own
	var args, closed []string               // closed are to be read-only when all is in its place
	if r := g.rights("/"); r == hidden {
		closed = append(closed, "/")
	} else {
		args = append(args, bind(r), "/", "/")
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	// A run of root is the owner of /proc/sys/kernel/core_pattern and its like, and needs no capability to write there.
	closed = append(closed, "/proc")
	args = append(args, g.temporary(p.Temp)...)
	for _, path := range g.paths {
		if path == "/" || slices.ContainsFunc(made, func(m string) bool { return path == m || within(path, m) }) {
			continue
		}
		is, around := g.named[path], g.around(path)
		switch {
		case is == around:
		case is != hidden:
			args = append(args, bind(is), path, path)
		case g.secret[path]:
			args = append(args, "--tmpfs", path)
			closed = append(closed, path)
		default:
			args = append(args, "--ro-bind", os.DevNull, path)
		}
	}
	links, err := g.links(slices.Concat(p.Read, p.Write))
	if err != nil {
		return nil, err
	}
	args = append(args, links...)
	for _, path := range closed {
		args = append(args, "--remount-ro", path)
	}
	return args, nil
}

// bind is the option that shows a file or folder.
func bind(r rights) string {
	if r == writable {
		return "--bind"
	}
	return "--ro-bind-try"
}

// temporary is /tmp: the run's own folder, but where other things lie in /tmp a file system in memory, so that their
// places are not made in that folder.
func (g *granter) temporary(own string) []string {
	if g.rights("/tmp") != hidden {
		return nil // the policy names it, or what holds it
	}
	for _, path := range g.paths {
		if g.named[path] != hidden && within(path, "/tmp") {
			own = ""
		}
	}
	if own == "" {
		return []string{"--tmpfs", "/tmp"}
	}
	return []string{"--bind", own, "/tmp"}
}

// narrow puts a part of a folder into the place of the folder.
func (g *granter) narrow(folder, part string) {
	r, ok := g.named[folder]
	if !ok || r == hidden {
		return
	}
	delete(g.named, folder)
	g.paths = slices.DeleteFunc(g.paths, func(path string) bool { return path == folder })
	if _, err := os.Stat(part); err != nil || g.named[part] != hidden {
		return
	}
	g.named[part] = r
	at, _ := slices.BinarySearchFunc(g.paths, part, byFolder)
	g.paths = slices.Insert(g.paths, at, part)
}

// rights are those that the policy gives to a real path.
func (g *granter) rights(path string) rights {
	if r, ok := g.named[path]; ok {
		return r
	}
	return g.around(path)
}

// around are the rights of what holds a real path.
func (g *granter) around(path string) rights {
	for path != "/" {
		path = filepath.Dir(path)
		if r, ok := g.named[path]; ok {
			return r
		}
	}
	return hidden
}

// within says whether a path lies below a folder.
func within(path, folder string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// maxLinks bounds how many symbolic links one path is followed through, as the kernel does.
const maxLinks = 40

// links are the arguments that make the symbolic links on the way to the paths, such as /bin to usr/bin, unless what
// holds them is seen anyway.
func (g *granter) links(paths []string) ([]string, error) {
	var args []string
	known := make(map[string]bool)
	for _, path := range paths {
		for range maxLinks {
			link, err := firstLink(path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && link == "" {
				break // resolve has said what may be missing
			}
			if err != nil {
				return nil, fmt.Errorf("follow %s: %w", path, err)
			}
			target, err := os.Readlink(link)
			if err != nil {
				return nil, fmt.Errorf("follow %s: %w", path, err)
			}
			if !known[link] && g.around(link) == hidden {
				known[link] = true
				args = append(args, "--symlink", target, link)
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(link), target)
			}
			path = filepath.Join(target, strings.TrimPrefix(path, link))
		}
	}
	return args, nil
}

// firstLink is the first part of a path that is a symbolic link, or "".
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
