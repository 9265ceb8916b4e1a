// Command puppet is the worker and the core that the fault suite pulls the
// strings of:
//
//	puppet worker SOCKET KIND                speaks the worker protocol
//	puppet shell SOCKET KIND JOB ACTS        is a shell worker's command
//	puppet child|daemon SOCKET KIND JOB RUN
//	puppet clock "" ""                       tells the time for each line it reads
//	puppet                                   stands between scheduler and core, see relay.go
//
// SOCKET is the suite's (act.Address), and what it finds them by in /proc.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := puppet(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "puppet:", err)
		os.Exit(1)
	}
}

func puppet(args []string) error {
	if len(args) == 0 {
		return relay()
	}
	if len(args) < 3 {
		return fmt.Errorf("what is %q?", args)
	}
	s := &strings{socket: args[1], kind: args[2]}
	switch role, rest := args[0], args[3:]; {
	case role == "worker" && len(rest) == 0:
		return s.worker()
	case role == "shell" && len(rest) == 2:
		return s.shell(rest[0], rest[1])
	case role == "clock":
		return clock()
	case role == "fork-daemon" && len(rest) == 2:
		return s.forkDaemon(rest[0], rest[1])
	case (role == "child" || role == "daemon") && len(rest) == 2:
		return s.idle(role, rest[0], rest[1])
	default:
		return fmt.Errorf("what is %q?", args)
	}
}

// clock prints the wall clock and the time since its start, in nanoseconds.
func clock() error {
	began := time.Now()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(time.Now().UnixNano(), time.Since(began).Nanoseconds())
	}
	return lines.Err()
}
