package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
)

// plant is a script that leaves behind what git runs or reads where it believes a repository: settings, hooks, filters, drivers,
// submodules, objects of another repository. What git runs writes to the file $ran, where only others than the run can.
const plant = `
evil="$PWD/evil.sh"
printf '#!/bin/sh\necho "$0 $*" >> "%s"\nexit 1\n' "$ran" > "$evil"
chmod 755 "$evil"
settings() {
	for name in core.fsmonitor core.pager core.editor core.sshCommand core.askPass diff.external gpg.program filter.evil.clean filter.evil.smudge filter.evil.process \
		diff.evil.command diff.evil.textconv merge.evil.driver credential.helper sequence.editor; do
		git config "$name" "$evil"
	done
	git config core.hooksPath "$hooks"
	git config commit.gpgSign true
	git config filter.evil.required true
}
hooks="$PWD/hooks"
mkdir -p hooks
for hook in pre-commit post-commit post-checkout post-index-change reference-transaction pre-applypatch applypatch-msg post-merge fsmonitor-watchman; do
	cp evil.sh "hooks/$hook"
done
echo '* filter=evil diff=evil merge=evil' > .gitattributes
printf '[submodule "sub"]\n\tpath = sub\n\turl = ext::%s\n\tupdate = !%s\n' "$evil" "$evil" > .gitmodules
echo changed >> README.md
test -z "$AGENTSCHED_FEEDBACK" || touch second
repository() { # DIR
	git init -q "$1"
	(cd "$1" && settings && mkdir -p .git/hooks && cp ../hooks/* .git/hooks/ 2>/dev/null || cp "$hooks"/* .git/hooks/)
	mkdir -p "$1/.git/objects/info"
	echo "$other/.git/objects" > "$1/.git/objects/info/alternates"
}
repository sub
case $way in
settings) settings 2> /dev/null ;; # of whatever repository this is
own) rm -rf .git; repository . ;;
leads) rm -rf .git; repository elsewhere; echo "gitdir: $PWD/elsewhere/.git" > .git ;;
link) rm -rf .git; repository elsewhere; ln -s elsewhere/.git .git ;;
esac
exit 0
`

// TestHostileLeavings: nothing of what a run leaves in its workspace is run by the scheduler when it collects the work, goes on
// with it in a second attempt, shows it and applies it.
func TestHostileLeavings(t *testing.T) {
	t.Parallel()
	levels := []string{"strict"}
	if testrun.Soaking() {
		levels = []string{"standard", "strict"}
	}
	b := newBench(t)
	b.config["sandbox"] = obj{"level": "standard", "least": "none"}
	ran, other := filepath.Join(b.dir, "ran"), filepath.Join(b.dir, "other")
	clone := func(to string) {
		if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", b.repo, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	variables := func(way string) string {
		return "export GIT_CONFIG_GLOBAL=/dev/null; ran='" + ran + "' other='" + other + "' way=" + way + "\n"
	}
	clone(other)
	ways := []string{"settings", "own", "leads", "link"}

	// What is planted works where somebody's own git meets it.
	for _, way := range ways {
		dir := filepath.Join(b.dir, "control-"+way)
		clone(dir)
		cmd := exec.Command("sh", "-c", variables(way)+plant)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", way, err, out)
		}
		cmd = exec.Command("git", "-c", "safe.directory=*", "-C", dir, "status")
		_, _ = cmd.CombinedOutput() // the planted programs fail
		if err := os.Remove(ran); err != nil {
			t.Fatalf("%s: the user's git has run nothing, so nothing is proven: %v", way, err)
		}
	}

	r := b.serve()
	var names []string
	var jobs []obj
	for _, level := range levels {
		for _, way := range ways {
			for _, isolation := range []string{"worktree", "copy", "direct"} {
				name := strings.Join([]string{level, way, isolation}, "-")
				dir := filepath.Join(b.dir, "of-"+name)
				clone(dir)
				names = append(names, name)
				jobs = append(jobs, with(shell(name, obj{"path": dir, "isolation": isolation}, variables(way)+plant, obj{"max_attempts": 2}),
					obj{"sandbox": obj{"level": level}, "verify": "test -e second"}))
			}
		}
	}
	b.submit(b.jobs(jobs...))
	for _, name := range names {
		u := r.await("the end of "+name, func(u *api.Update) bool {
			return u.Kind == api.UpdateJob && u.Name == job.Name(name) && u.Entry.Terminal()
		})
		j := b.show(name)
		if len(j.Attempts) != 2 {
			t.Errorf("%s had %d attempts, want a second that goes on", name, len(j.Attempts))
		}
		patch, _, _ := b.command("diff", name)
		out, errs, code := b.command("apply", name)
		switch direct := strings.HasSuffix(name, "direct"); {
		case direct && b.last(j).Class == job.Config: // it says that the filter is not run
		case u.State != job.RunCompleted:
			t.Errorf("%s is %s: %s: %s", name, u.State, b.last(j).Class, b.last(j).Message)
		case !strings.Contains(patch, "+changed"):
			t.Errorf("%s: the patch is %q", name, patch)
		case !direct && code != 0:
			t.Errorf("%s: apply ended with %d: %s%s", name, code, out, errs)
		}
	}
	r.stop()
	if text, err := os.ReadFile(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the scheduler has run what a run left: %s %v", text, err)
	}
}
