package agentcore

import "golang.org/x/sys/unix"

// dupOnto makes descriptor to a copy of from. dup2 does not exist on every
// Linux architecture, dup3 does.
func dupOnto(from, to int) error { return unix.Dup3(from, to, 0) }
