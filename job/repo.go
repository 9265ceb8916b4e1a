package job

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var scpAddress = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^:\-][^\x00-\x20]*$`)

// ValidRepo says what is wrong with the address of a repository: https://HOST/PATH,
// ssh://HOST/PATH or USER@HOST:PATH without a password, or a folder of the host where the job runs, as
// file:///PATH or an absolute path.
func ValidRepo(address string) error {
	bad := func(what string) error {
		return fmt.Errorf("%q %s, want https://HOST/PATH, ssh://HOST/PATH, USER@HOST:PATH or an absolute path", RedactURL(address), what)
	}
	if strings.ContainsFunc(address, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return bad("has control characters")
	}
	if folder, local := LocalRepo(address); local {
		if !filepath.IsAbs(folder) || path.Clean(folder) != folder || InKernel(folder) {
			return bad("is no clean path of a folder")
		}
		return nil
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
	case u.RawQuery != "" || u.Fragment != "" || strings.Contains(address, " "):
		return bad("has more than a path")
	}
	if _, password := u.User.Password(); password || u.Scheme == "https" && u.User != nil {
		return bad("holds a user or password, which a credential helper is to give")
	}
	return nil
}

// LocalRepo returns the folder that an address of a repository names, if it is one of the
// host where the job runs.
func LocalRepo(address string) (folder string, local bool) {
	if folder, local = strings.CutPrefix(address, "file://"); local {
		return folder, true
	}
	if strings.HasPrefix(address, "/") {
		return address, true
	}
	return "", false
}

// RedactURL returns an address without what may be a secret.
func RedactURL(address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return address
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// validateOrigin looks at a workspace that is made of something else than a folder of
// the host where the job runs.
func (s *Spec) validateOrigin(bad func(string, string, ...any)) {
	w := s.Workspace
	given := 0
	for _, is := range []bool{w.Path != "", w.Repo != "", w.Parcel != Parcel{}} {
		if is {
			given++
		}
	}
	if given > 1 {
		bad("workspace", "names more than one of path, repo and parcel, want one")
	}
	if w.Isolation != Worktree {
		bad("workspace.isolation", "%q is not for a repository, of which the job has a worktree; leave it out", w.Isolation)
	}
	if w.Repo != "" {
		if err := ValidRepo(w.Repo); err != nil {
			bad("workspace.repo", "%v", err)
		}
	}
	if w.Parcel == (Parcel{}) {
		return
	}
	if w.Base != "" {
		bad("workspace.base", "%q has no use with a parcel, which has its own commit; leave it out", w.Base)
	}
	for name, digest := range map[string]string{"digest": w.Parcel.Digest, "on": w.Parcel.On} {
		if digest != "" && !digestForm.MatchString(digest) || name == "digest" && digest == "" {
			bad("workspace.parcel."+name, "%q is not a SHA-256 of 64 hexadecimal digits", digest)
		}
	}
	if w.Parcel.Sub != "" {
		localFile("workspace.parcel.sub", w.Parcel.Sub, bad)
		if path.Clean(w.Parcel.Sub) != w.Parcel.Sub || w.Parcel.Sub == "." {
			bad("workspace.parcel.sub", "%q is not a clean path, want one such as web/site", w.Parcel.Sub)
		}
	}
	if f := w.Parcel.Folder; f != "" && (!filepath.IsAbs(f) || !OneLine(f)) {
		bad("workspace.parcel.folder", "%q is not an absolute path of one line", f)
	}
}
