package workspace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentsched/agentsched/job"
)

// A job of isolation direct has the stash of the user's repository. So it can take
// what the user stashed, and what it stashes itself and leaves there is in no patch.
// Collect tells of both, as far as the log of the stash shows it. A worktree has a
// stash of its own (see leftovers), and so has a copy.

// maxStash bounds how much of the log of a stash is read, in bytes.
const maxStash = 1 << 20

var objectID = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// stashed returns the entries of the stash of r (see stashEntries). It reads the log
// that git itself lists the stash by; a repository that keeps its references otherwise
// (reftable) has none, and gets no notes.
func stashed(r *repo) []string {
	f, err := os.OpenFile(filepath.Join(r.Common, "logs", "refs", "stash"), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxStash))
	if err != nil {
		return nil
	}
	return stashEntries(string(text))
}

// stashEntries returns the entries that a log of the stash lists, each as its
// commit, a space and its title, which an agent may have written: no part of a command
// that is shown.
func stashEntries(log string) (entries []string) {
	for line := range strings.Lines(log) {
		head, title, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if words := strings.Fields(head); ok && len(words) > 1 && objectID.MatchString(words[1]) {
			entries = append(entries, words[1]+" "+title)
		}
	}
	return entries
}

// changedStash tells what has left the stash of the job's repository since the
// start, and what the job has left in it.
func changedStash(rec *record) (notes []string) {
	if rec.Spec.Isolation != job.Direct {
		return nil // it has a stash of its own
	}
	now := stashed(rec.Repo)
	for _, e := range without(rec.Stash, now) {
		id, title, _ := strings.Cut(e, " ")
		notes = append(notes, fmt.Sprintf("while the job ran, %q was taken from the stash of %s; to put it back: git stash store -m restored %s", title, rec.Repo.Common, id))
	}
	for _, e := range without(now, rec.Stash) {
		id, title, _ := strings.Cut(e, " ")
		notes = append(notes, fmt.Sprintf("not part of the patch: %q, which is in the stash of %s; to apply it: git stash apply %s", title, rec.Repo.Common, id))
	}
	const most = 10
	if n := len(notes) - most; n > 0 {
		notes = append(notes[:most], fmt.Sprintf("and %d more changes of the stash", n))
	}
	return notes
}

// without returns the elements of a that b lacks.
func without(a, b []string) (rest []string) {
	has := map[string]bool{}
	for _, e := range b {
		has[e] = true
	}
	for _, e := range a {
		if !has[e] {
			rest = append(rest, e)
		}
	}
	return rest
}
