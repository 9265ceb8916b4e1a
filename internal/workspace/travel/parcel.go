package travel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Identity says which repository a folder belongs to, wherever it lies.
type Identity struct {
	Format string `json:"format"` // of ids: sha1 (40 hexadecimal digits) or sha256 (64)
	// Roots are the commits without parents that the folder's commit descends from,
	// sorted. Of a shallow clone they are where its history ends.
	Roots []string `json:"roots,omitempty"`
	// Shallow are those of Roots that have parents elsewhere.
	Shallow []string `json:"shallow,omitempty"`
	// Folder stands for a repository without a commit: a digest of its path.
	Folder string `json:"folder,omitempty"`
}

// Key is the name of a mirror: 64 hexadecimal digits.
type Key string

// Key returns the name of the mirror of the repository. Those of one owner, e.g. a
// tenant, share nothing with those of another.
func (id Identity) Key(owner string) Key {
	return key("folder", owner, id.Format, strings.Join(id.Roots, " "), strings.Join(id.Shallow, " "), id.Folder)
}

// URLKey returns the name of the mirror of the repository at an address.
func URLKey(owner, url string) Key { return key("url", owner, url) }

func key(words ...string) Key {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s,", len(w), w)
	}
	return Key(hex.EncodeToString(h.Sum(nil)))
}

// Start is what a checkout is to hold.
type Start struct {
	Base   string `json:"base,omitempty"` // the commit that is checked out, "" for none
	Commit string `json:"commit"`         // the same with what was not committed; Base if that is nothing
	Sub    string `json:"sub,omitempty"`  // the folder below the repository's top, with slashes
	// Convert are the settings by which git converts the ends of lines: core.autocrlf
	// and core.eol.
	Convert map[string]string `json:"convert,omitempty"`
}

// Parcel describes what travels, for who takes it.
type Parcel struct {
	Identity
	Start

	Size   int64  `json:"size"`             // of the bundle in bytes; 0 if the receiver has Commit
	SHA256 string `json:"sha256,omitempty"` // of the bundle, hexadecimal
	// Prerequisites are the commits that the bundle builds on.
	Prerequisites []string `json:"prerequisites,omitempty"`
	// On is the digest of the parcel that brings these, with all the history that they
	// need; "" for a bundle that builds on nothing.
	On string `json:"on,omitempty"`
	// Warnings tell what does not travel: contents of Git LFS, submodules, files that cannot
	// be read.
	Warnings []string `json:"warnings,omitempty"`
}

// Bounds of what a parcel lists.
const (
	maxIDs      = 1000
	maxWarnings = 100
)

var (
	sha1Name   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Name = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// isID reports whether s is a full id of that format.
func isID(format, s string) bool {
	if format == "sha256" {
		return sha256Name.MatchString(s)
	}
	return format == "sha1" && sha1Name.MatchString(s)
}

// Validate says what is wrong with a parcel that came from another host.
func (p *Parcel) Validate() error {
	if p.Format != "sha1" && p.Format != "sha256" {
		return fmt.Errorf("format is %q, want sha1 or sha256", p.Format)
	}
	if err := p.Start.validate(p.Format); err != nil {
		return err
	}
	for name, ids := range map[string][]string{"roots": p.Roots, "shallow": p.Shallow, "prerequisites": p.Prerequisites} {
		if len(ids) > maxIDs {
			return fmt.Errorf("%s names %d commits, want at most %d", name, len(ids), maxIDs)
		}
		for i, id := range ids {
			if !isID(p.Format, id) {
				return fmt.Errorf("%s[%d] is %q, want a full id of %s", name, i, id, p.Format)
			}
		}
	}
	for _, id := range p.Shallow {
		if !slices.Contains(p.Roots, id) {
			return fmt.Errorf("shallow names %s, which is none of roots", id)
		}
	}
	if (p.Base == "") != (len(p.Roots) == 0) {
		return errors.New("base and roots: a repository has both, or no commit")
	}
	if len(p.Roots) == 0 != (p.Folder != "") || p.Folder != "" && !sha256Name.MatchString(p.Folder) {
		return fmt.Errorf("folder is %q, want a digest for a repository without a commit, else nothing", p.Folder)
	}
	if p.On != "" && !sha256Name.MatchString(p.On) {
		return fmt.Errorf("on is %q, want the SHA-256 of a parcel", p.On)
	}
	if p.Size < 0 || (p.Size == 0) != (p.SHA256 == "") || p.SHA256 != "" && !sha256Name.MatchString(p.SHA256) {
		return fmt.Errorf("size is %d and sha256 %q, want both of a bundle, or neither", p.Size, p.SHA256)
	}
	return nil
}

// validate says what is wrong with a start that came from another host.
func (p *Start) validate(format string) error {
	if !isID(format, p.Commit) {
		return fmt.Errorf("commit is %q, want a full id of %s", p.Commit, format)
	}
	if p.Base != "" && !isID(format, p.Base) {
		return fmt.Errorf("base is %q, want a full id of %s", p.Base, format)
	}
	if p.Sub != "" && (!filepath.IsLocal(filepath.FromSlash(p.Sub)) || strings.ContainsRune(p.Sub, 0) || filepath.ToSlash(filepath.Clean(filepath.FromSlash(p.Sub))) != p.Sub) {
		return fmt.Errorf("sub is %q, want a folder below the top, e.g. web/site", p.Sub)
	}
	if slices.ContainsFunc(strings.Split(p.Sub, "/"), func(s string) bool { return strings.EqualFold(s, ".git") }) {
		return fmt.Errorf("sub is %q, want a folder outside of .git", p.Sub)
	}
	for name, value := range p.Convert {
		if !slices.Contains(conversions[name], value) {
			return fmt.Errorf("convert: %s is %q, want one of %v", name, value, conversions[name])
		}
	}
	return nil
}

// conversions are the settings that travel, and what they may be. Others that decide
// how a file becomes an object are attributes, and lie in the files.
var conversions = map[string][]string{
	"core.autocrlf": {"true", "false", "input"},
	"core.eol":      {"lf", "crlf", "native"},
}

// Limits bound what travels. A zero takes the default.
type Limits struct {
	Bundle int64 // bytes of a bundle, and of the files that are not committed; 1 GiB
	Files  int   // files of the tree; 200 000
	Tree   int64 // bytes of all files of the tree, as they are checked out; 8 GiB
}

func (l Limits) orDefaults() Limits {
	if l.Bundle <= 0 {
		l.Bundle = 1 << 30
	}
	if l.Files <= 0 {
		l.Files = 200_000
	}
	if l.Tree <= 0 {
		l.Tree = 8 << 30
	}
	return l
}
