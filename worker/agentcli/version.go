package agentcli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// Judge says what becomes of a run on a version of a package's program. A version older than p.Oldest is refused, one newer than
// p.Version gets a warning. A version that cannot be read is not judged.
func Judge(p worker.Package, version string) (warning string, refused *worker.Failure) {
	have, ok := parseVersion(version)
	if !ok {
		return "", nil
	}
	if oldest, ok := parseVersion(p.Oldest); ok && compareVersions(have, oldest) < 0 {
		return "", &worker.Failure{Class: job.Config,
			Message: fmt.Sprintf("%s %s is too old: version %s or later is needed", p.Program, have, p.Oldest),
			Hint:    fmt.Sprintf("update it: npm install -g %s@%s", p.Name, p.Version)}
	}
	if tested, ok := parseVersion(p.Version); ok && compareVersions(have, tested) > 0 {
		return fmt.Sprintf("%s %s is newer than %s, the newest version that this scheduler is tested with", p.Program, have, p.Version), nil
	}
	return "", nil
}

// version is the numbers of a version, as semver.org has them.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func compareVersions(a, b version) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), cmp.Compare(a[2], b[2]))
}

// parseVersion reads three numbers; what follows them, as in 1.2.3-rc.1, counts for nothing.
func parseVersion(text string) (v version, ok bool) {
	text, _, _ = strings.Cut(text, "-")
	text, _, _ = strings.Cut(text, "+")
	parts := strings.Split(text, ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return v, false
		}
		v[i] = int(n)
	}
	return v, true
}

// RunsOn tells a run which version its program says that it is. It returns an event if there is something to say of that, and has
// decided the run if the version is too old.
func (r *Run) RunsOn(p worker.Package, version string) []job.Event {
	if r.judged {
		return nil
	}
	r.judged = true
	warning, refused := Judge(p, version)
	switch {
	case refused != nil:
		r.Decide(worker.Result{Class: refused.Class, Message: refused.Message, Hint: refused.Hint})
	case warning != "":
		return []job.Event{{Kind: job.EventWarning, Text: warning}}
	}
	return nil
}
