package jobfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/strictyaml"
)

// origin is where a job stands in its file, and where the file says under other
// names what the job's specification holds.
type origin struct {
	*reader
	path    string            // of the job
	renamed map[string]string // field of the specification: field of the file
}

// origin remembers where the job stands.
func (r *reader) origin(path string, e *entry) *origin {
	o := &origin{r, path, map[string]string{}}
	r.origins[e.ID] = o
	if e.Merge.names != nil {
		o.renamed["workspace.from"] = "merge"
		if e.Needs.names == nil {
			o.renamed["needs"] = "merge"
		}
	}
	added := len(e.Needs.names)
	for i, name := range e.Merge.names {
		at := fmt.Sprintf("merge[%d]", i)
		o.renamed[fmt.Sprintf("workspace.from[%d]", i)] = at
		if !slices.Contains(e.Needs.names, name) {
			o.renamed[fmt.Sprintf("needs[%d]", added)] = at
			added++
		}
	}
	// A single id stands for a list of one, and the items for the whole for_each.
	for item, whole := range map[string]string{
		"needs[0]": "needs", "merge[0]": "merge", "workspace.from[0]": "workspace.from", "for_each.items": "for_each",
		"sandbox.level": "sandbox", "network[0]": "network", "node.has[0]": "node.has",
	} {
		if r.Has(path+"."+whole) && !r.Has(path+"."+item) {
			o.renamed[item] = whole
		}
	}
	return o
}

// fail records a mistake in a field of the job's specification.
func (o *origin) fail(field, message string) {
	if rest, ok := strings.CutPrefix(field, "from"); ok && (rest == "" || rest[0] == '[') {
		field = "workspace." + field
	}
	for o.renamed[field] != "" {
		field = o.renamed[field]
	}
	o.Failf(o.path+"."+field, "%s", message)
}

// faulty reports whether a mistake was recorded at path or within it.
func (r *reader) faulty(path string) bool {
	var list strictyaml.Errors
	errors.As(r.Err(), &list)
	return slices.ContainsFunc(list, func(e *strictyaml.Error) bool {
		rest, within := strings.CutPrefix(e.Path, path)
		return within && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}
