// Package proc holds a process tree as one value: start it, talk to it, wait for its leader, stop it in stages, and
// prove that nothing of it is left.
//
// [Host.Start] makes a [Tree] from a [Spec]: what to run, tagged with the run that it belongs to. Every tree ends with
// [Tree.Stop], whether it is cancelled, timed out, or swept after its leader ended by itself. Stop returns either a
// [Report] that proves the tree empty, or an error that wraps [ErrGhost] and names what could not be killed.
//
// # The proof (Linux)
//
// The process that holds a [Host] is a child subreaper. The kernel therefore gives it every orphan of every tree that it
// started, whatever the orphan did to its session, its process group or its environment: once the leader is reaped, a
// tree has a living member if and only if this process has a child that it did not start. That list is one short read,
// so the proof for a tree that ended cleanly costs microseconds. The other means (cgroup, tag in
// the environment, session, ancestry seen before a stop) find the run that an orphan belongs to, or what a dead Host left
// behind.
//
// # Rules for the user
//
//   - One Host for a process, opened before any child is started, and every child is started through it (Start or Run).
//     A child started behind its back looks like an orphan: it is reaped, and killed when a run ends.
//   - Every Start is followed by a Stop, also after the leader has exited; until then the tree counts as live.
//   - A leader that is not the program but makes surroundings for it, such as a sandbox, says which process is the program
//     (Spec.Enter). The tree is then proven empty as any other, and told of as the program's.
//   - What another daemon starts on request (systemd-run, docker run, at) is no descendant and is not seen.
//
// On systems other than Linux the package is best effort: process groups and the parent links that ps prints. An orphan
// that left its group and its parent is not found there.
package proc
