// Package workspace makes the folder that a job works in, finds out what
// changed there, and brings it back to the user.
//
// Prepare makes a folder from a job's id, name and job.Workspace: a worktree of a git
// repository, the user's own folder, a copy of it or an empty one. After the run Collect makes one patch
// with everything that differs from the start, whether the agent committed, staged or only
// wrote it.
//
// A fresh worktree or copy can begin with the patches of other jobs (stack.go),
// merged three ways: they are a part of its start, so its own patch is only what
// the job itself changed beyond them. A conflict is an error, or is left to the worker
// between conflict marks (clash.go).
//
// What a job started from is remembered outside of what the agent can reach:
// each job has a private git directory (baseline.go) that borrows the objects
// of the user's repository and adds its own. Comparing therefore works alike
// for every isolation, with or without a repository, also after the agent
// deleted .git or rewrote history.
//
// A worktree is not one of `git worktree`: it has a git directory of its own
// (owngit.go), in which the agent can do what it likes. When its work is collected,
// the user's repository gets one commit of it on the job's branch (branch.go), which
// can be merged and pushed like any other, and below that the commits that the agent
// made itself, checked like those of a stranger (import.go).
//
// No git command of this package runs a program that a repository names, whether
// in its configuration, its hooks or below it: filters come from the user's
// configuration alone (config.go), and nothing is ever fetched (gitEnv). Those that
// read what an agent wrote can be confined besides (confine.go).
//
// The package guarantees: the user's own branches, index and files are not touched, except by
// isolation direct and by Apply, which changes working files only and either
// all or none of them; a process killed at any instant leaves nothing that the
// next Prepare cannot repair; Remove refuses to delete work that exists
// nowhere else. Files that .gitignore excludes are not considered work.
//
// The program git, MinGit or newer, must be installed, for every isolation.
package workspace
