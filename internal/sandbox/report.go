package sandbox

import "errors"

// ErrNoNewPrivileges is CanReport's error where a run can be watched only if setuid programs have no effect in it.
var ErrNoNewPrivileges = errors.New("the kernel lets only CAP_SYS_ADMIN watch a run whose setuid programs keep their effect")

// CanReport returns nil if this process can watch runs that are otherwise as without a sandbox (Policy.Report). The error
// wraps ErrNoNewPrivileges if it can watch with Policy.NoNewPrivileges.
func CanReport() error { return canReport() }
