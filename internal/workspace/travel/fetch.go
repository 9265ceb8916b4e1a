package travel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Remote is a repository at an address.
type Remote struct {
	URL string // as job.ValidRepo has it; what it names on this host is the caller's to allow
	// Base is a branch, a tag or a full commit id; "" is what the remote's HEAD names. A tag
	// goes before a branch of the same name, as with git rev-parse.
	Base string
	// Config are settings for this fetch beside those of the user's git, as name and value:
	// http.sslCAInfo. They never come from a job, and no other process can see them.
	Config [][2]string
}

// Of the errors of Fetch and OpenRemote: what is to be corrected before it can succeed.
var (
	ErrLogin  = errors.New("git cannot log in there")
	ErrNoBase = errors.New("there is no such branch, tag or commit")
)

// explain has an error of git that speaks with a remote wrap one of ours.
func explain(err error) error {
	if err == nil {
		return nil
	}
	// Of git and ssh, in the language C.
	for said, is := range map[string]error{
		"could not read Username": ErrLogin, "could not read Password": ErrLogin, "Authentication failed": ErrLogin, "Permission denied (": ErrLogin,
		"Host key verification failed": ErrLogin, "The requested URL returned error: 403": ErrLogin,
		"not our ref": ErrNoBase, "couldn't find remote ref": ErrNoBase,
	} {
		if strings.Contains(err.Error(), said) {
			return fmt.Errorf("%w: %w", is, err)
		}
	}
	return err
}

// Fetch fetches what a base names from a remote, and returns its commit, which the
// mirror has then with all its history. Objects are checked as those of a bundle are.
func (m *Mirror) Fetch(ctx context.Context, r Remote) (string, error) {
	commit, err := m.fetch(ctx, r)
	if err != nil {
		return "", fmt.Errorf("fetch %s of %s: %w", cmp.Or(r.Base, "HEAD"), job.RedactURL(r.URL), explain(err))
	}
	return commit, nil
}

func (m *Mirror) fetch(ctx context.Context, r Remote) (string, error) {
	if err := job.ValidRepo(r.URL); err != nil {
		return "", err
	}
	held, err := m.lock(ctx)
	if err != nil {
		return "", err
	}
	defer held.release()
	git, far := m.git().under(held), m.far(ctx, r).under(held)
	from, id, err := far.resolve(ctx, m.format, r)
	if err != nil {
		return "", err
	}
	if have, err := git.out(ctx, "for-each-ref", "--contains="+id, "--count=1", "--format=%(refname)"); err == nil && have != "" {
		return m.fetched(ctx, held, id)
	}
	objects, drop, err := m.quarantine()
	if err != nil {
		return "", err
	}
	defer drop()
	defer func() { _ = git.run(context.WithoutCancel(ctx), nil, nil, "update-ref", "-d", fetchedRef) }() // lock does it else
	most := m.Limits.orDefaults().Bundle
	bounded, stop := bound(ctx, objects, most)
	defer stop()
	err = far.with("GIT_OBJECT_DIRECTORY="+objects).run(bounded, nil, io.Discard, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
		"--no-recurse-submodules", "--no-auto-maintenance", "--refmap=", "--force", "--", r.URL, from+":"+fetchedRef)
	if err != nil {
		return "", err
	}
	if err := within(objects, most); err != nil {
		return "", err
	}
	git = git.with("GIT_OBJECT_DIRECTORY=" + objects)
	commit, err := git.out(ctx, "rev-parse", "--verify", fetchedRef+"^{commit}")
	if err != nil {
		return "", err
	}
	if isID(m.format, r.Base) && commit != r.Base {
		return "", fmt.Errorf("the remote gave commit %s", commit)
	}
	if _, err := git.read(ctx, commit, m.Limits.orDefaults(), false); err != nil {
		return "", of("commit "+commit, "", err)
	}
	if err := settle(filepath.Join(objects, "pack"), filepath.Join(m.dir, "objects", "pack")); err != nil {
		return "", err
	}
	return commit, m.keep(ctx, held, commit, commit)
}

// fetchedRef is at what is being fetched.
const fetchedRef = "refs/fetched"

// quarantine makes a folder for objects that are not a part of the mirror yet, beside
// those that are. drop removes it.
func (m *Mirror) quarantine() (objects string, drop func(), err error) {
	dir, err := os.MkdirTemp(m.dir, incoming)
	if err != nil {
		return "", nil, err
	}
	drop = func() { os.RemoveAll(dir) }
	if objects, err = m.quarantineIn(dir); err != nil {
		drop()
	}
	return objects, drop, err
}

func (m *Mirror) quarantineIn(dir string) (objects string, err error) {
	objects = filepath.Join(dir, "objects")
	for _, sub := range []string{"pack", "info"} {
		if err := os.MkdirAll(filepath.Join(objects, sub), 0o700); err != nil {
			return "", err
		}
	}
	return objects, os.WriteFile(filepath.Join(objects, "info", "alternates"), []byte(filepath.Join(m.dir, "objects")+"\n"), 0o600)
}

// boundEvery is how often the size of what arrives is looked at: a fetch ends with at
// most what arrives in so long beyond its bound.
const boundEvery = 100 * time.Millisecond

func within(dir string, most int64) error {
	if size := sizeOf(dir); size > most {
		return &LimitError{Folder: "what the remote sends", What: "bytes", Have: size, Most: most}
	}
	return nil
}

// bound returns a context that ends with a *LimitError once the folder holds more than
// that many bytes. stop waits until nobody looks any more.
func bound(ctx context.Context, dir string, most int64) (bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(boundEvery)
		defer tick.Stop()
		for {
			if err := within(dir, most); err != nil {
				cancel(err)
			}
			select {
			case <-bounded.Done():
				return
			case <-tick.C:
			}
		}
	})
	return bounded, func() {
		cancel(nil)
		looking.Wait()
	}
}

// far is the git that speaks with a remote, as the user's own would: with the user's
// configuration, credential helpers and keys, and without a question to anybody.
func (m *Mirror) far(ctx context.Context, r Remote) repository {
	g := m.git()
	g.write, g.args = nil, []string{"-c", "core.askPass="} // it needs the network, and the user's files
	g = g.with("GIT_ASKPASS=", "SSH_ASKPASS=", "SSH_ASKPASS_REQUIRE=never", "GCM_INTERACTIVE=never", "GIT_ALLOW_PROTOCOL="+protocol(r.URL))
	g.env = slices.DeleteFunc(g.env, func(kv string) bool {
		return kv == "GIT_CONFIG_GLOBAL=/dev/null" || strings.HasPrefix(kv, "GIT_CONFIG_NOSYSTEM=")
	})
	if ssh := g.ssh(ctx); ssh != "" {
		g = g.with("GIT_SSH_COMMAND=" + ssh)
	}
	return g.with(settings(append(slices.Clone(r.Config),
		[2]string{"transfer.fsckObjects", "true"}, [2]string{"fetch.fsckObjects", "true"},
		[2]string{"fetch.recurseSubmodules", "false"}, [2]string{"fetch.unpackLimit", "1"},
		[2]string{"fetch.fsck.zeroPaddedFilemode", "ignore"}, [2]string{"fetch.fsck.badTimezone", "ignore"},
		[2]string{"fetch.fsck.missingSpaceBeforeDate", "ignore"}, [2]string{"fetch.fsck.missingNameBeforeEmail", "ignore"},
	))...)
}

// protocol returns what git may speak to fetch from an address.
func protocol(address string) string {
	if _, local := job.LocalRepo(address); local {
		return "file"
	}
	return "https:ssh"
}

// ssh returns the command by which git is to reach a host, which asks nothing; "" leaves
// a program that is not ssh to itself.
func (r repository) ssh(ctx context.Context) string {
	command := os.Getenv("GIT_SSH_COMMAND")
	if command == "" {
		command, _ = r.out(ctx, "config", "--get", "core.sshCommand") // unset: an error
	}
	command = cmp.Or(command, "ssh")
	if program, _, _ := strings.Cut(command, " "); filepath.Base(program) != "ssh" {
		return ""
	}
	return command + " -o BatchMode=yes"
}

func (m *Mirror) fetched(ctx context.Context, held lock, commit string) (string, error) {
	commit, err := m.git().under(held).out(ctx, "rev-parse", "--verify", commit+"^{commit}")
	if err != nil {
		return "", err
	}
	if _, err := m.git().under(held).read(ctx, commit, m.Limits.orDefaults(), false); err != nil {
		return "", of("commit "+commit, "", err)
	}
	return commit, m.keep(ctx, held, commit, commit)
}

// settings returns them as variables, which no list of processes shows.
func settings(config [][2]string) []string {
	env := []string{fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(config))}
	for i, item := range config {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, item[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, item[1]))
	}
	return env
}

// resolve returns what is to be asked of the remote, and the id of that.
func (r repository) resolve(ctx context.Context, format string, remote Remote) (from, id string, err error) {
	if isID(format, remote.Base) {
		return remote.Base, remote.Base, nil
	}
	names := []string{"HEAD"}
	if b := remote.Base; b != "" {
		if strings.HasPrefix(b, "-") || strings.HasPrefix(b, "refs/") && !strings.HasPrefix(b, "refs/heads/") && !strings.HasPrefix(b, "refs/tags/") {
			return "", "", fmt.Errorf("%w: %q cannot be a branch, tag or full commit id", ErrNoBase, b)
		}
		if err := r.run(ctx, nil, nil, "check-ref-format", "refs/heads/"+b); err != nil {
			return "", "", fmt.Errorf("%w: %q cannot be a branch, tag or full commit id", ErrNoBase, b)
		}
		names = []string{"refs/tags/" + b, "refs/heads/" + b}
		if strings.HasPrefix(b, "refs/") {
			names = []string{b}
		}
	}
	var listed bytes.Buffer
	most := &measured{w: &listed, hash: sha256.New(), most: maxHeader}
	if err := r.run(ctx, nil, most, append([]string{"ls-remote", "--quiet", "--", remote.URL}, names...)...); err != nil {
		return "", "", err
	}
	ids := map[string]string{}
	for line := range strings.Lines(listed.String()) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && isID(format, id) {
			ids[name] = id
		}
	}
	for _, name := range names {
		if ids[name] != "" {
			return name, cmp.Or(ids[name+"^{}"], ids[name]), nil
		}
	}
	return "", "", fmt.Errorf("%w: the remote has no branch or tag %q", ErrNoBase, cmp.Or(remote.Base, "HEAD"))
}
