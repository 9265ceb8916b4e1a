package agentcore

import "errors"

// ErrUnknown says that this system does not tell what a sampler (SelfUse, CPUOf,
// CPUOfCgroup, DiskSpace) was asked for.
var ErrUnknown = errors.New("not known on this system")
