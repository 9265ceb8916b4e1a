// Package node has agentcores on other hosts work for a scheduler: Node is the end on such a
// host, Nodes the end at the scheduler that leads.
//
//	scheduler: supervisor.AwayHandler ◄── Nodes ═══ internal/wire ═══ Node ──► supervisor ─► agentcores
//
// A node's supervisor keeps its cores alive as that of a scheduler does. What the scheduler asks a core, and what a
// core asks the scheduler, goes through channel 1, 2, … of the link, each of which belongs to the
// core with that index, in the words of package ipc. Channel 0 is a conversation of package ipc
// about the node: see messages.go.
//
// What a core tells of its runs (events, ends) is written to a spool on the node's disk first,
// and sent until the scheduler has stored it: neither the end of a link nor of either process loses
// it. When a link is new, the node says which runs it has, and the scheduler, maybe another one
// than before, which of them still count. It stops the others and forgets what they said.
//
// # Lease
//
// Runs on a node are valid as long as the scheduler is heard. A heartbeat of the node that the
// scheduler has answered renews the lease from the moment at which it was sent; while the lease holds, the
// node's supervisor renews the permits of its cores; a core stops its runs when their permits have lapsed:
//
//	heard ── Lease ──► no permit is renewed ── permit_validity ──► the cores stop their runs ── stop.* ──► gone
//
// and only after that, and a tenth more for clocks that go differently, the scheduler gives the jobs to others (ipc.Lease.Lost). All
// of it is measured by clocks that go on while a host sleeps. A scheduler answers heartbeats only
// while it keeps the claims of its runs alive, so that one that was deposed without knowing it
// renews nothing.
package node
