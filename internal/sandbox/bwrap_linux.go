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
		return "", (&Problem{What: "bubblewrap is not installed"}).installs("bubblewrap")
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
		return path, "", (&Problem{What: fmt.Sprintf("%s --version: %v", path, err)}).installs("bubblewrap")
	}
	version = strings.TrimPrefix(strings.TrimSpace(string(text)), "bubblewrap ")
	if older(version, minBwrap) {
		return path, version, (&Problem{What: fmt.Sprintf("%s is version %s, and 0.4.0 or newer is needed", path, version)}).installs("bubblewrap")
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

// arguments are bubblewrap's for the policy, without the program. The init takes the place of process 1. Files are named
// by source.
func (b bubblewrap) arguments(p *Policy, source func(path string) (string, error)) ([]string, error) {
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
	mounts, err := p.mounts(source)
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
func (p *Policy) mounts(source func(path string) (string, error)) ([]string, error) {
	g, err := p.resolve()
	if err != nil {
		return nil, err
	}
	g.narrow()
	var args, closed []string // closed are to be read-only when all is in its place
	bind := func(path, to string, r rights) error {
		from, err := source(path)
		if errors.Is(err, fs.ErrNotExist) && r != writable {
			return nil // it was there a moment ago
		}
		option := "--bind"
		if r != writable {
			option = "--ro-bind"
		}
		args = append(args, option, from, to)
		return err
	}
	if r := g.rights("/"); r == hidden {
		closed = append(closed, "/")
	} else if err := bind("/", "/", r); err != nil {
		return nil, err
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	// A run of root is the owner of /proc/sys/kernel/core_pattern and its like, and needs no capability to write there.
	closed = append(closed, "/proc")
	if own := g.temporary(p.Temp); own != "" {
		real, err := filepath.EvalSymlinks(own)
		if err != nil {
			return nil, fmt.Errorf("find the run's temporary folder: %w", err)
		}
		if err := bind(real, "/tmp", writable); err != nil {
			return nil, err
		}
	} else if g.named["/tmp"] == hidden {
		args = append(args, "--tmpfs", "/tmp")
	}
	for _, path := range g.paths {
		if path == "/" || slices.ContainsFunc(made, func(m string) bool { return path == m || within(path, m) }) {
			continue
		}
		is, around := g.named[path], g.around(path)
		switch {
		case is == around:
		case is != hidden:
			if err := bind(path, path, is); err != nil {
				return nil, err
			}
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

// temporary is what /tmp shows: the run's own folder, but "" where other things lie in /tmp, so that their places are not
// made in that folder, or where the policy names /tmp.
func (g *granter) temporary(own string) string {
	for _, path := range g.paths {
		if g.named[path] != hidden && (path == "/tmp" || within(path, "/tmp")) {
			return ""
		}
	}
	return own
}

// narrow shows of /sys only what there is to know of processors and memory, instead of what every run may read: the rest is
// about the host's devices, and each folder is a mount. What else the policy names there stays.
func (g *granter) narrow() {
	const part = "/sys/devices/system"
	usual := func(path string) bool {
		return within(path, "/sys") && g.named[path] == readable && slices.Contains(SystemFiles(), path)
	}
	if !slices.ContainsFunc(g.paths, usual) {
		return
	}
	g.paths = slices.DeleteFunc(g.paths, func(path string) bool {
		gone := usual(path)
		if gone {
			delete(g.named, path)
		}
		return gone
	})
	if _, named := g.named[part]; named {
		return
	}
	if _, err := os.Stat(part); err != nil {
		return
	}
	g.named[part] = readable
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

// links are the arguments that make the symbolic links on the way to the paths, such as /bin to usr/bin, unless what
// holds them is seen anyway.
func (g *granter) links(paths []string) ([]string, error) {
	var args []string
	known := make(map[string]bool)
	for _, path := range paths {
		_, err := follow(path, func(link, target string) error {
			if !known[link] && g.around(link) == hidden {
				known[link] = true
				args = append(args, "--symlink", target, link)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // resolve has said what may be missing
			return nil, fmt.Errorf("follow %s: %w", path, err)
		}
	}
	return args, nil
}
