package agentcore

import (
	"runtime/debug"
	"strings"
)

// Version returns the version of the module that both programs are built from, e.g. "v0.1.0", or for a build from a
// working tree "devel" with the commit it was built from where that is known.
func Version() string {
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
