//go:build !linux

package browser

import "testing"

// process and what is asked of it need /proc; elsewhere nothing is looked for.
type process struct{}

func identify(int) process             { return process{} }
func descendants(...process) []process { return nil }
func gone(t *testing.T, all []process) { t.Helper(); _ = all }
