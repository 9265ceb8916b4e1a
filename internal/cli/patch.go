package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
	"github.com/agentsched/agentsched/internal/terminal"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
)

// runCmd runs a helper command such as git to its end. Nil stands for cmd.Run; a
// process that has a proc.Host must use the host's Run, or the host takes the
// command for an orphan.
type runCmd = func(context.Context, *exec.Cmd) error

func workspaces(dir *statedir.Dir, run runCmd) *workspace.Manager {
	return workspace.New(workspace.Config{Root: dir.Work(), Locks: dir.Locks(), Folders: dir.Folders(), Exclude: []string{dir.Path()}, Run: run})
}

// savedPatch returns the patch that the job's last attempt left; without a path if
// there is none. Of a job that builds on others it is its own part, or the whole.
func savedPatch(attempts []job.Attempt, whole bool) (patch job.Artifact) {
	o := lastOutcome(attempts)
	if o == nil {
		return patch
	}
	if whole {
		patch, _ = o.Artifact(job.ArtifactWhole)
	}
	if patch.Path == "" {
		patch, _ = o.Artifact(job.ArtifactPatch)
	}
	return patch
}

// lastOutcome returns that of the last attempt; nil without one.
func lastOutcome(attempts []job.Attempt) *job.Outcome {
	if len(attempts) == 0 {
		return nil
	}
	return attempts[len(attempts)-1].Outcome
}

// patchError adds to an error about a job's patch what to do if the file is not
// what the job left.
func patchError(err error, name job.Name) error {
	if changed, ok := errors.AsType[*statedir.ChangedError](err); ok {
		return &exitError{code: exitFailed, err: fmt.Errorf("the patch of job %s cannot be trusted, nothing of it is used: %w", name, changed),
			hints: []string{"run the job again: scheduler retry " + string(name)}}
	}
	return failure(err)
}

func diffCommand(con *console, at *target) *cobra.Command {
	var whole bool
	cmd := &cobra.Command{
		Use: "diff JOB", Short: "Print the patch of a job: what it has changed so far", Args: cobra.ExactArgs(1),
		Long: `Print the patch of a job, as git does: what it has changed since it began, new files too. Of
a job that has not ended it is what it has changed up to now, on the scheduler's host.`,
		Example: "  scheduler diff fix-login | less\n  scheduler diff --whole fix-login > fix.patch",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error { return printDiff(cmd.Context(), con, p, args[0], whole) })
		},
	}
	cmd.Flags().BoolVar(&whole, "whole", false, wholeUsage)
	return cmd
}

// printDiff prints the patch of the job that ref names.
func printDiff(ctx context.Context, con *console, p *peer, ref string, whole bool) error {
	j, err := p.Job(ctx, ref)
	if err != nil {
		return err
	}
	if !j.Job.State.Terminal() {
		if p.offline == nil {
			return &exitError{code: exitFailed, err: fmt.Errorf("job %s is %s: a scheduler elsewhere gives its patch when it has ended", j.Job.Spec.Name, statusOf(&j.Job).State),
				hints: []string{"`scheduler logs -f " + string(j.Job.Spec.Name) + "` shows what it does"}}
		}
		return liveDiff(ctx, con, p.offline.dir, &j.Job)
	}
	patch, done, err := p.fetchPatch(ctx, &j, savedPatch(j.Attempts, whole))
	if err != nil {
		return err
	}
	defer done()
	if !whole {
		if err := tellRest(ctx, con, p, &j.Job); err != nil {
			return err
		}
	}
	if patch.Path == "" {
		fmt.Fprintf(con.stderr, "job %s changed nothing\n", j.Job.Spec.Name)
		return nil
	}
	return con.printPatch(patch, j.Job.Spec.Name)
}

const wholeUsage = "with the patches of the jobs that it builds on"

// tellRest says where the rest of a job's work is, of which its own patch is a
// part: in those of the jobs that it builds on, or that it stands for.
func tellRest(ctx context.Context, con *console, p *peer, e *api.Job) error {
	var before []string
	if e.Resolved != nil {
		for _, p := range e.Resolved.Patches {
			if p.Path != "" {
				before = append(before, string(p.Job))
			}
		}
	}
	if len(before) > 0 {
		fmt.Fprintf(con.stderr, "job %s builds on the patches of %s, which its own does not hold: apply those first, in this order, or give --whole\n", e.Spec.Name, strings.Join(before, ", "))
	}
	if f := &e.Spec.Flow; f.Node != "" || f.ForEach == nil && f.Loop == nil {
		return nil
	}
	all, err := p.Jobs(ctx, jobQuery{batch: e.Batch, tenant: e.Spec.Tenant, oldest: true})
	if err != nil {
		return err
	}
	var parts []string
	for i := range all.Jobs {
		if all.Jobs[i].Spec.Flow.Node == e.Spec.Name {
			parts = append(parts, string(all.Jobs[i].Spec.Name))
		}
	}
	how := "apply those"
	if f := &e.Spec.Flow; f.Loop != nil && len(parts) > 0 {
		how = fmt.Sprintf("`scheduler apply --whole %s` has all of them", parts[len(parts)-1])
	}
	fmt.Fprintf(con.stderr, "job %s stands for its parts, whose patches are its work: %s; %s\n", e.Spec.Name, dash(strings.Join(parts, ", ")), how)
	return nil
}

// liveDiff prints what an unfinished job has changed up to now.
func liveDiff(ctx context.Context, con *console, dir *statedir.Dir, e *api.Job) error {
	w := workspaces(dir, nil)
	ws, err := w.Open(ctx, e.WorksIn(), e.Spec.Workspace)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(con.stderr, "job %s has not started\n", e.Spec.Name)
		return nil
	}
	if err != nil {
		return err
	}
	out, done := con.patchOut()
	_, err = w.Diff(ctx, ws, out)
	return errors.Join(err, done())
}

// printPatch prints the patch of the job of that name.
func (con *console) printPatch(patch job.Artifact, of job.Name) error {
	file, err := statedir.OpenArtifact(patch)
	if err != nil {
		return patchError(err, of)
	}
	defer file.Close()
	out, done := con.patchOut()
	_, err = io.Copy(out, file)
	return failure(errors.Join(err, done()))
}

// patchOut is where a patch is printed: standard output, which gets it byte for
// byte unless it is a terminal, which could be told to obey it. done is called
// after the last byte.
func (con *console) patchOut() (w io.Writer, done func() error) {
	if file := con.stdoutFile(); file != nil && term.IsTerminal(int(file.Fd())) {
		v := terminal.NewVisibleWriter(con.stdout)
		return v, v.Close
	}
	return con.stdout, func() error { return nil }
}

func applyCommand(con *console, prog *program, at *target) *cobra.Command {
	var to string
	var whole, anyway bool
	cmd := &cobra.Command{
		Use: "apply JOB", Short: "Bring a job's patch into your own tree", Args: cobra.ExactArgs(1),
		Long: `Bring a job's patch into your own tree, as changes that are not staged. The merge is
three-way: your tree may have moved on. On a conflict nothing at all is changed and
the files are named.

With --server the patch comes from there, and the tree is the current one, if that is of
the same repository, else the folder that was brought along; --to names another.

Exit code: 0 it is applied, or was already; 1 it conflicts, or the job did not complete.`,
		Example: "  scheduler apply fix-login\n  scheduler apply fix-login --to ../other-clone",
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.do(func(p *peer) error {
				j, err := p.Job(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return apply(cmd.Context(), con, prog, p, &j, applyOptions{to: to, anyway: anyway, whole: whole})
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the `DIR`ectory to change (default: the folder that the job was given)")
	cmd.Flags().BoolVar(&whole, "whole", false, wholeUsage)
	cmd.Flags().BoolVar(&anyway, "anyway", false, "also if the job did not complete")
	con.jsonFlag(cmd, "print the changed files as JSON")
	return cmd
}

// applyOptions are the flags of `apply`.
type applyOptions struct {
	to            string
	anyway, whole bool
}

// appliedPatch is what `apply --json` prints.
type appliedPatch struct {
	Job     job.ID        `json:"job"`
	Root    string        `json:"root"`              // the folder that was changed
	Files   []appliedFile `json:"files"`             // none: the job changed nothing
	Already bool          `json:"already,omitempty"` // the patch was applied before
}

type appliedFile struct {
	Change string `json:"change"`
	Path   string `json:"path"`
}

func apply(ctx context.Context, con *console, prog *program, p *peer, j *api.JobDetail, o applyOptions) error {
	e := &j.Job
	name, to, err := e.Spec.Name, o.to, error(nil)
	switch state := statusOf(e).State; {
	case !e.State.Terminal():
		return failure(fmt.Errorf("job %s is %s; its patch is final when it has ended", name, state))
	case state != job.RunCompleted && !o.anyway:
		return &exitError{code: exitFailed, err: fmt.Errorf("job %s is %s", name, state), hints: []string{"`scheduler apply --anyway " + string(name) + "` applies what it did all the same"}}
	}
	if to == "" {
		if e.Spec.Workspace.Isolation == job.Direct {
			return failure(fmt.Errorf("job %s worked on %s directly: its changes are there already", name, e.Spec.Workspace.Path))
		}
		if to, err = p.folderOf(ctx, e); err != nil {
			return err
		}
	}
	if to, err = filepath.Abs(to); err != nil {
		return failure(err)
	}
	patch, done, err := p.fetchPatch(ctx, j, savedPatch(j.Attempts, o.whole))
	if err != nil {
		return err
	}
	defer done()
	if !o.whole {
		if err := tellRest(ctx, con, p, e); err != nil {
			return err
		}
	}
	if patch.Path == "" && con.json {
		return failure(writeJSON(con.stdout, appliedPatch{Job: e.ID, Root: to, Files: []appliedFile{}}))
	}
	if patch.Path == "" {
		fmt.Fprintf(con.stdout, "job %s changed nothing\n", name)
		return nil
	}
	cfg, err := prog.loadConfig()
	if err != nil {
		return err
	}
	w, done, err := p.workspaces()
	if err != nil {
		return err
	}
	defer done()
	w = w.TrustFilters(cfg.Workspace.TrustFilters)
	before, done, err := p.patchesBefore(ctx, e, o.whole)
	if err != nil {
		return err
	}
	defer done()
	applied, err := w.Apply(ctx, job.Patch{Job: name, Path: patch.Path, Bytes: patch.Bytes, SHA256: patch.SHA256}, to, before...)
	var conflict *workspace.ConflictError
	if errors.As(err, &conflict) {
		start, byHand := w.StartCommit(e.WorksIn()), "scheduler diff "+string(name)
		if !e.Spec.Workspace.IsFolder() {
			start = e.Spec.Workspace.Parcel.Base
		} else if last := lastOutcome(j.Attempts); last != nil && last.Commit != nil && start != "" && o.to == "" && (o.whole || e.Resolved == nil || len(e.Resolved.Patches) == 0) {
			byHand = "git merge " + last.Commit.Branch // the branch holds what the patch does
		}
		return &exitError{code: exitFailed, err: fmt.Errorf("nothing was changed: the patch of job %s conflicts with %s in\n  %s", name, to, strings.Join(visible(conflict.Files), "\n  ")),
			hints: conflictHints(conflict, e, start, byHand, o.to == "")}
	}
	if err != nil {
		return patchError(err, name)
	}
	if p.offline == nil { // whoever cleans there has to look
	} else if err := w.MarkApplied(ctx, partsOf(e, patch)...); err != nil {
		fmt.Fprintf(con.stderr, "scheduler: the patch is applied, but `scheduler clean` will not know of it: %s\n", terminal.Visible(err.Error(), "\n\t"))
	}
	if con.json {
		out := appliedPatch{Job: e.ID, Root: applied.Root, Files: []appliedFile{}, Already: applied.Already}
		for _, f := range applied.Files {
			out.Files = append(out.Files, appliedFile{string(f.Change), f.Path})
		}
		return failure(writeJSON(con.stdout, out))
	}
	if applied.Already {
		fmt.Fprintf(con.stdout, "the patch of job %s is applied already\n", name)
		return nil
	}
	for _, f := range applied.Files {
		fmt.Fprintf(con.stdout, "%-9s %s\n", f.Change, terminal.Visible(f.Path, ""))
	}
	fmt.Fprintf(con.stdout, "%s changed in %s, not staged\n", count(len(applied.Files), "file"), terminal.Visible(applied.Root, ""))
	return nil
}

// maxBefore bounds how many of the jobs that a job goes on from are looked at.
const maxBefore = 32

// patchesBefore returns the patches of the jobs that a job goes on from, the latest first, whose work its own holds too. done
// removes those that came from elsewhere.
func (p *peer) patchesBefore(ctx context.Context, e *api.Job, whole bool) (list []job.Patch, done func(), err error) {
	var all []func()
	done = func() {
		for _, f := range all {
			f()
		}
	}
	for id := e.Continues; id != "" && len(all) < maxBefore; {
		j, err := p.Job(ctx, string(id))
		if isNotFound(err) {
			break
		}
		if err != nil {
			done()
			return nil, nil, err
		}
		patch, drop, err := p.fetchPatch(ctx, &j, savedPatch(j.Attempts, whole))
		if err != nil {
			done()
			return nil, nil, err
		}
		all = append(all, drop)
		if patch.Path != "" {
			list = append(list, job.Patch{Job: j.Job.Spec.Name, Path: patch.Path, Bytes: patch.Bytes, SHA256: patch.SHA256})
		}
		id = j.Job.Continues
	}
	return list, done, nil
}

// partsOf returns the patch files whose work a patch of the job holds: its own, and
// of the whole those of the jobs that it builds on.
func partsOf(e *api.Job, patch job.Artifact) []string {
	if patch.Name != job.ArtifactWhole {
		return []string{patch.Path}
	}
	parts := []string{filepath.Join(filepath.Dir(patch.Path), workspace.PatchName)}
	if e.Resolved != nil {
		for _, p := range e.Resolved.Patches {
			if p.Path != "" {
				parts = append(parts, p.Path)
			}
		}
	}
	return parts
}

// conflictHints say why a patch conflicts, as far as that is known, and what to do.
// start is the commit that the job began with, byHand the command to merge by hand;
// home: the folder is the job's own, where it can be done again.
func conflictHints(c *workspace.ConflictError, e *api.Job, start, byHand string, home bool) (hints []string) {
	if len(c.Own) > 0 {
		hints = append(hints, fmt.Sprintf("set your own changes aside that are not committed, apply, and bring them back: %s", strings.Join(visible(c.Own), ", ")))
	}
	if home && e.Spec.Workspace.Base == "" && len(c.Own) < max(len(c.Files), 1) {
		what := "these files are not as they were when the job began"
		if start != "" && c.Head != "" && start != c.Head {
			what = fmt.Sprintf("HEAD has moved from %.7s to %.7s since the job began", start, c.Head)
		}
		hints = append(hints, fmt.Sprintf("%s; run the job again on top of what is there now: scheduler retry %s", what, e.Spec.Name))
	}
	return append(hints, "or merge by hand: "+byHand)
}

// visible returns file names, each as one line of a terminal.
func visible(names []string) []string {
	lines := make([]string, len(names))
	for i, n := range names {
		lines[i] = terminal.Visible(n, "")
	}
	return lines
}

func cleanCommand(con *console, at *target) *cobra.Command {
	var force, caches bool
	cmd := &cobra.Command{
		Use: "clean [JOB...]", Short: "Remove the worktrees of finished jobs, or the caches of runs",
		Long: `Remove the worktrees, copies and private agent state of finished jobs: of those named, or of all.
A workspace stays if its patch was neither applied nor merged, or if it has work that exists nowhere
else; each is listed with the reason. --force removes it as well. Logs and patches are kept.

A patch counts as merged if the job's branch is contained in HEAD or was pushed, or if the folder
that the job was given holds the same.

--cache removes something else: what the confined runs of all tenants have downloaded and built
(modules, packages, build caches). No job may run meanwhile.`,
		Example: "  scheduler clean\n  scheduler clean --force fix-login\n  scheduler clean --cache",
		RunE: func(cmd *cobra.Command, args []string) error {
			if caches {
				if force || len(args) > 0 {
					return usage(errors.New("--cache removes the caches of all tenants and no workspace: give it alone"))
				}
				return at.do(func(p *peer) error { return cleanCaches(cmd.Context(), con, p) })
			}
			if force && len(args) == 0 {
				return usage(errors.New("--force deletes work for good; name the jobs that you mean"))
			}
			return at.do(func(p *peer) error {
				jobs, err := finished(cmd.Context(), p, args)
				if err != nil {
					return err
				}
				return clean(cmd.Context(), con, p, jobs, force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "delete the named jobs' work, also if it was not applied or exists nowhere else")
	cmd.Flags().BoolVar(&caches, "cache", false, "remove what runs have downloaded and built, of all tenants, and no workspace")
	return cmd
}

// cleanCaches removes the caches of all tenants, unless a run may use one.
func cleanCaches(ctx context.Context, con *console, p *peer) error {
	dir := p.offline.dir
	if dir.Held() != nil { // else no run is alive, whatever the store says
		list, err := p.Jobs(ctx, jobQuery{states: []job.EntryState{job.Dispatched}})
		if err != nil {
			return err
		}
		if n := len(list.Jobs); n > 0 {
			return usage(fmt.Errorf("the caches are in use by %s", count(n, "running job")), "wait for them, or stop starting jobs first: scheduler pause")
		}
	}
	n, err := dir.RemoveCaches()
	if con.json {
		return failure(errors.Join(err, writeJSON(con.stdout, struct {
			Caches int `json:"caches"`
		}{n})))
	}
	fmt.Fprintf(con.stdout, "%s removed\n", count(n, "cache"))
	return failure(err)
}

// finished returns the jobs that refs name, which must be finished, or every
// finished job. One that the store has forgotten, and whose workspace was kept
// since it holds work, is still known by its id.
func finished(ctx context.Context, p *peer, refs []string) (jobs []api.Job, err error) {
	kept, err := forgotten(p.offline.dir, func(id job.ID) error {
		_, err := p.Client.Job(ctx, string(id))
		return err
	})
	if err != nil {
		return nil, err
	}
	gone := func(id job.ID) api.Job { return api.Job{ID: id, Spec: job.Spec{Name: job.Name(id)}} }
	if len(refs) == 0 {
		list, err := p.Jobs(ctx, jobQuery{states: []job.EntryState{job.Completed, job.Cancelled, job.Expired}, oldest: true})
		for _, id := range kept {
			list.Jobs = append(list.Jobs, gone(id))
		}
		return list.Jobs, err
	}
	for _, ref := range refs {
		if slices.Contains(kept, job.ID(ref)) {
			jobs = append(jobs, gone(job.ID(ref)))
			continue
		}
		j, err := p.Job(ctx, ref)
		if err != nil {
			return nil, err
		}
		if !j.Job.State.Terminal() {
			return nil, fmt.Errorf("job %s is %s; only finished jobs are cleaned", j.Job.Spec.Name, stateWord(&j.Job))
		}
		jobs = append(jobs, j.Job)
	}
	return jobs, nil
}

// forgotten returns the ids of jobs that have folders in the state directory and
// that are not known any more: known returns an error that says so.
func forgotten(dir *statedir.Dir, known func(job.ID) error) ([]job.ID, error) {
	found := map[job.ID]bool{}
	for _, parent := range []string{filepath.Dir(dir.Job("x")), dir.Work()} {
		folders, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, f := range folders {
			id := job.ID(f.Name())
			if _, err := uuid.Parse(f.Name()); err != nil || found[id] {
				continue
			}
			switch err := known(id); {
			case isNotFound(err):
				found[id] = true
			case err != nil:
				return nil, err
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// cleaned is what `clean --json` prints.
type cleaned struct {
	Removed int             `json:"removed"` // workspaces
	Kept    []keptWorkspace `json:"kept"`
}

type keptWorkspace struct {
	Job job.ID `json:"job"`
	Why string `json:"why"`
}

// inUseError says that a workspace is that of a job which has not ended.
type inUseError struct{ by api.Job }

func (e *inUseError) Error() string {
	return fmt.Sprintf("it is kept: job %s, which goes on from it, is %s", e.by.ID, statusOf(&e.by).State)
}

// unused returns an *inUseError if a job that has not ended works in the folder of a job that has.
func unused(ctx context.Context, p *peer, e *api.Job) error {
	for at, by := e, e.ContinuedAs; by != ""; by = at.ContinuedAs {
		next, err := p.Client.Job(ctx, string(by))
		if err != nil {
			return err
		}
		if at = &next.Job; !at.State.Terminal() {
			return &inUseError{*at}
		}
	}
	return nil
}

func clean(ctx context.Context, con *console, p *peer, entries []api.Job, force bool) error {
	dir := p.offline.dir
	w := workspaces(dir, nil)
	out := cleaned{Kept: []keptWorkspace{}}
	unapplied, seen := 0, map[job.ID]bool{}
	var errs []error
	for i := range entries {
		e := &entries[i]
		folder := e.WorksIn()
		if seen[folder] {
			continue
		}
		seen[folder] = true
		_, err := w.Open(ctx, folder, e.Spec.Workspace)
		existed := !errors.Is(err, fs.ErrNotExist)
		homes, _ := filepath.Glob(filepath.Join(dir.Job(folder), "home-*"))
		err = w.Remove(ctx, folder, e.Spec.Workspace, workspace.RemoveOptions{
			Force: force, KeepUnapplied: true, Unused: func(ctx context.Context) error { return unused(ctx, p, e) }, Also: homes,
		})
		var unsaved *workspace.UnsavedError
		var inUse *inUseError
		switch {
		case errors.As(err, &inUse):
			out.Kept = append(out.Kept, keptWorkspace{e.ID, inUse.Error()})
			if !con.json {
				fmt.Fprintf(con.stdout, "%s: %s\n", e.Spec.Name, inUse.Error())
			}
			continue
		case errors.As(err, &unsaved):
			out.Kept = append(out.Kept, keptWorkspace{e.ID, unsaved.Error()})
			if unsaved.Patch != "" {
				unapplied++
			}
			if !con.json {
				fmt.Fprintf(con.stdout, "%s: %s\n", e.Spec.Name, terminal.Visible(unsaved.Error(), ""))
			}
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("job %s: %w", e.Spec.Name, err))
			continue
		}
		if existed {
			out.Removed++
		}
	}
	if con.json {
		return failure(errors.Join(append(errs, writeJSON(con.stdout, out))...))
	}
	fmt.Fprintf(con.stdout, "%s removed, %d kept\n", count(out.Removed, "workspace"), len(out.Kept))
	if unapplied > 0 {
		fmt.Fprintln(con.stderr, "hint: bring a patch into your tree: scheduler apply JOB; or remove its workspace all the same, the patch stays: scheduler clean --force JOB")
	}
	return failure(errors.Join(errs...))
}
