package workercli

import (
	"embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
)

// pin is one CLI at one version.
type pin struct {
	kind    job.WorkerKind
	npm     string // package
	version string // exact
	bytes   int64  // on disk, about
	// script is the package's own postinstall script, where the package is a stub
	// until that has put the native binary in place; "" for none.
	script string
}

// locks has a package-lock.json for each kind: the packages for every system, with
// the hashes of their content. For a new version make it anew beside the
// package.json of an install, with npm install --package-lock-only
// --ignore-scripts --omit-lockfile-registry-resolved.
//
//go:embed locks
var locks embed.FS

// pins is the one place where versions stand. The adapters read what these
// versions print; a new version belongs here only with transcripts of it.
func pins() []pin {
	return []pin{
		{kind: "codex", npm: "@openai/codex", version: "0.169.0", bytes: 425e6},
		{kind: "claude", npm: "@anthropic-ai/claude-code", version: "2.1.197", bytes: 245e6, script: "install.cjs"},
		{kind: "opencode", npm: "opencode-ai", version: "1.18.33", bytes: 370e6, script: "postinstall.mjs"},
	}
}

// Kinds lists the workers whose programs this package installs.
func Kinds() []job.WorkerKind {
	var kinds []job.WorkerKind
	for _, p := range pins() {
		kinds = append(kinds, p.kind)
	}
	return kinds
}

// Version returns the pinned version of a kind, "" if it is none of Kinds.
func Version(kind job.WorkerKind) string {
	p, _ := pinOf(kind)
	return p.version
}

// Size returns about how many bytes the kinds take on disk.
func Size(kinds ...job.WorkerKind) int64 {
	var n int64
	for _, kind := range kinds {
		p, _ := pinOf(kind)
		n += p.bytes
	}
	return n
}

func pinOf(kind job.WorkerKind) (pin, error) {
	all := pins()
	if i := slices.IndexFunc(all, func(p pin) bool { return p.kind == kind }); i >= 0 {
		return all[i], nil
	}
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = string(p.kind)
	}
	return pin{}, fmt.Errorf("worker %q is not one that can be installed, want one of %s", kind, strings.Join(names, ", "))
}

// folder is where the install stands below the cache folder. The version is in
// its name, so that an upgrade leaves runs of the old version alone.
func (p pin) folder() string { return fmt.Sprintf("%s-%s", p.kind, p.version) }

// executable is the program's path within an install.
func (p pin) executable(install string) string {
	return filepath.Join(install, "node_modules", ".bin", string(p.kind))
}

// manifest is the package.json of an install.
func (p pin) manifest() ([]byte, error) {
	m := manifest{
		Name: "agentsched-" + string(p.kind), Private: true,
		Dependencies: map[string]string{p.npm: p.version},
	}
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

type manifest struct {
	Name         string            `json:"name"`
	Private      bool              `json:"private"`
	Dependencies map[string]string `json:"dependencies"`
}

// lockfile is the package-lock.json of an install.
func (p pin) lockfile() ([]byte, error) { return locks.ReadFile("locks/" + string(p.kind) + ".json") }
