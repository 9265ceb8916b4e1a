//go:build !linux

package e2e

import "os"

// terminal is a pseudo-terminal; see terminal_linux_test.go.
type terminal struct{ slave *os.File }

func (b *bench) onTerminal() { b.t.Skip("how to make a pseudo-terminal is only known of Linux") }

func (r *run) hangUp() { r.b.t.Fatal("there is no terminal") }
