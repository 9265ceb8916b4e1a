package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// KeepDescriptors keeps every descriptor of this process but the three standard ones from the programs that it starts.
// Those that Go opens are kept already; this is for those that the process before it has left open. It is called first
// thing in main, before anything is started.
func KeepDescriptors() {
	if keepDescriptors() == nil {
		return
	}
	open, _ := os.ReadDir("/dev/fd")
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
