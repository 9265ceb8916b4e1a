// Package version knows which version of the project a program was built from.
//
// Nothing comes in but what the Go toolchain stamped into the binary; out goes
// one line of text.
package version

import (
	"runtime/debug"
	"strings"
)

// String returns the module's version, e.g. "v0.1.0", or for a build from a
// working tree "devel" with the commit it was built from where that is known.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	return strings.TrimSuffix("devel-"+commit+dirty, "-")
}
