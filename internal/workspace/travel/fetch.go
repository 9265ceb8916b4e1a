package travel

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Remote is a repository at an address.
type Remote struct {
	URL string // https://…, ssh://… or user@host:path; without a password
	// Base is a branch, a tag or a full commit id; "" is what the remote's HEAD names. A tag
	// goes before a branch of the same name, as with git rev-parse.
	Base string
	// Config are settings for this fetch, as name and value: credential.helper,
	// http.sslCAInfo, core.sshCommand. They come from the node's own configuration, never
	// from a job, and no other process can see them.
	Config [][2]string
}

var scpAddress = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^:\-][^\x00-\x20]*$`)

// checkURL says what is wrong with an address.
func checkURL(address string) error {
	bad := func(what string) error {
		return fmt.Errorf("%q %s, want https://HOST/PATH, ssh://HOST/PATH or USER@HOST:PATH", redactURL(address), what)
	}
	if !strings.Contains(address, "://") {
		if !scpAddress.MatchString(address) {
			return bad("is not an address of a repository")
		}
		return nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return bad("cannot be read")
	case u.Scheme != "https" && u.Scheme != "ssh":
		return bad("is not fetched")
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || strings.HasPrefix(u.User.Username(), "-"):
		return bad("names no host")
	case u.RawQuery != "" || u.Fragment != "" || strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return bad("has more than a path")
	}
	if _, password := u.User.Password(); password || u.Scheme == "https" && u.User != nil {
		return bad("holds a user or password, which a credential helper is to give")
	}
	return nil
}

// redactURL returns an address without what may be a secret.
func redactURL(address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return address
}

// Fetch fetches what a base names from a remote, and returns its commit, which the
// mirror has then with all its history. Objects are checked as those of a bundle are.
func (m *Mirror) Fetch(ctx context.Context, r Remote) (string, error) {
	commit, err := m.fetch(ctx, r)
	if err != nil {
		return "", fmt.Errorf("fetch %s of %s: %w", cmp.Or(r.Base, "HEAD"), redactURL(r.URL), err)
	}
	return commit, nil
}

func (m *Mirror) fetch(ctx context.Context, r Remote) (string, error) {
	if err := checkURL(r.URL); err != nil {
		return "", err
	}
	held, err := m.lock(ctx)
	if err != nil {
		return "", err
	}
	defer held.release()
	git := m.git().under(held)
	far := git.with(append(settings(append(slices.Clone(r.Config),
		[2]string{"transfer.fsckObjects", "true"}, [2]string{"fetch.fsckObjects", "true"},
		[2]string{"fetch.recurseSubmodules", "false"}, [2]string{"fetch.unpackLimit", "1"},
		[2]string{"fetch.fsck.zeroPaddedFilemode", "ignore"}, [2]string{"fetch.fsck.badTimezone", "ignore"},
		[2]string{"fetch.fsck.missingSpaceBeforeDate", "ignore"}, [2]string{"fetch.fsck.missingNameBeforeEmail", "ignore"},
	)), "GIT_ALLOW_PROTOCOL=https:ssh")...)
	from, id, err := far.resolve(ctx, m.format, r)
	if err != nil {
		return "", err
	}
	if have, err := git.out(ctx, "for-each-ref", "--contains="+id, "--count=1", "--format=%(refname)"); err == nil && have != "" {
		return m.fetched(ctx, held, id)
	}
	const to = "refs/fetched"
	defer func() { _ = git.run(context.WithoutCancel(ctx), nil, nil, "update-ref", "-d", to) }() // the next fetch moves it
	err = far.run(ctx, nil, io.Discard, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance",
		"--refmap=", "--force", "--", r.URL, from+":"+to)
	if err != nil {
		return "", err
	}
	commit, err := git.out(ctx, "rev-parse", "--verify", to+"^{commit}")
	if err != nil {
		return "", err
	}
	if isID(m.format, r.Base) && commit != r.Base {
		return "", fmt.Errorf("the remote gave commit %s", commit)
	}
	return m.fetched(ctx, held, commit)
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
			return "", "", fmt.Errorf("%q cannot be a branch, tag or full commit id", b)
		}
		if err := r.run(ctx, nil, nil, "check-ref-format", "refs/heads/"+b); err != nil {
			return "", "", fmt.Errorf("%q cannot be a branch, tag or full commit id", b)
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
	return "", "", fmt.Errorf("the remote has no branch or tag %q", cmp.Or(remote.Base, "HEAD"))
}
