// Package sandbox holds a run to what it was granted: files, connections and calls of the kernel.
//
// Level Standard needs no namespace. Policy.Prepare makes a small static program, the stub, in memory. The stub is
// started instead of the run's program: it takes the grants upon itself (no new privileges, no capabilities, a Landlock
// domain, a seccomp filter) and becomes the program with execve(2). So the process keeps its pid, session, cgroup and
// descriptors, and nothing of the starting process is bound but the child.
//
// What one cannot decide by a call's arguments alone, such as the address of connect(2), the kernel asks of the starting
// process (seccomp user notification). That decides and makes the call itself, on the run's socket, so the run cannot
// change the address in between.
//
// At level Strict bubblewrap makes namespaces and mounts around the stub, and process 1 in them is a small program of ours,
// the init. The run sees the granted files and nothing else of the host, and has processes, a loopback device and System V
// objects of its own. Process 1 tells how the program has ended, asks what is left to end, and takes all with it. The stub opens
// the sockets by which the run and this process talk, and hands them out: see Start.Listeners and Start.Dial.
//
// Probe tries what the host can do. Linux on amd64 and arm64 has all levels; other systems have None.
package sandbox
