package sandbox

import "os"

// Start is how a program is started under a policy. What starts it takes Path instead of the program's and Extra instead
// of the program's descriptors, which are the first of them; the program's name, arguments, environment and folder stay.
// It calls Started when the process was started, and Close when the run has ended, or was not started.
type Start struct {
	Path  string
	Extra []*os.File // descriptors 3, 4, and so on; the program gets only its own

	system start
}
