package agentcli

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Catalog is the programs that can be installed, ordered by kind, each at the one
// version that its adapter was tried with.
type Catalog []pin

// pin is one CLI at one version.
type pin struct {
	kind job.WorkerKind
	worker.Package
}

// CatalogOf returns what the adapters say of their programs' packages (worker.Packaged).
func CatalogOf(adapters map[string]worker.Adapter) Catalog {
	var all Catalog
	for _, name := range slices.Sorted(maps.Keys(adapters)) {
		if a, ok := adapters[name].(worker.Packaged); ok {
			all = append(all, pin{job.WorkerKind(name), a.Package()})
		}
	}
	return all
}

// Kinds lists the workers whose programs can be installed.
func (c Catalog) Kinds() []job.WorkerKind {
	var kinds []job.WorkerKind
	for _, p := range c {
		kinds = append(kinds, p.kind)
	}
	return kinds
}

// Package returns that of a kind, pinned; the zero value if it is none of Kinds.
func (c Catalog) Package(kind job.WorkerKind) worker.Package {
	p, _ := c.of(kind)
	return p.Package
}

// Size returns about how many bytes the kinds take on disk.
func (c Catalog) Size(kinds ...job.WorkerKind) int64 {
	var n int64
	for _, kind := range kinds {
		p, _ := c.of(kind)
		n += p.Bytes
	}
	return n
}

func (c Catalog) of(kind job.WorkerKind) (pin, error) {
	if i := slices.IndexFunc(c, func(p pin) bool { return p.kind == kind }); i >= 0 {
		return c[i], nil
	}
	names := make([]string, len(c))
	for i, p := range c {
		names[i] = string(p.kind)
	}
	return pin{}, fmt.Errorf("worker %q cannot be installed, want one of %s", kind, strings.Join(names, ", "))
}

// folder is where the install stands below the cache folder. The version is in
// its name, so that an upgrade leaves runs of the old version alone.
func (p pin) folder() string { return fmt.Sprintf("%s-%s", p.kind, p.Version) }

// executable is the program's path within an install.
func (p pin) executable(install string) string {
	return filepath.Join(install, "node_modules", ".bin", p.Program)
}

// manifest is the package.json of an install.
func (p pin) manifest() ([]byte, error) {
	m := manifest{
		Name: "agentsched-" + string(p.kind), Private: true,
		Dependencies: map[string]string{p.Package.Name: p.Version},
	}
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

type manifest struct {
	Name         string            `json:"name"`
	Private      bool              `json:"private"`
	Dependencies map[string]string `json:"dependencies"`
}
