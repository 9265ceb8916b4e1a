// Package sample reads from the system what package watchdog decides about:
// what this process uses, the CPU time of a run's processes, the space on a
// disk, and the wall clock beside the monotonic one.
//
// Each sampler is one call without memory. Where the system does not tell,
// the answer is ErrUnknown, or a negative number in a watchdog.CoreUse.
package sample

import "errors"

// ErrUnknown says that this system does not tell.
var ErrUnknown = errors.New("not known on this system")
