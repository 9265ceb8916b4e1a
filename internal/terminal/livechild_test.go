package terminal

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"time"
)

// liveChild is set for a child process of a test, which shows a live view on
// its standard output and obeys the words on file 3; what happens it tells on
// file 4.
const liveChild = "PROGRESS_TEST_LIVE_CHILD"

func runLiveChild() int {
	orders, reports := bufio.NewScanner(os.NewFile(3, "orders")), os.NewFile(4, "reports")
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	v := NewLive(os.Stdout, os.Stdin, threeJobs, LiveOptions{Colour: os.Getenv("NO_COLOR") == "", Zone: time.UTC})
	log := Beside(v, os.Stderr)
	for orders.Scan() {
		switch orders.Text() {
		case "story":
			for _, u := range story()[:22] {
				v.Show(u)
			}
		case "rest":
			for _, u := range story()[22:] {
				v.Show(u)
			}
		case "flood":
			// A flood has to be over while the terminal takes nothing.
			began := time.Now()
			updates := story()
			for i := range 10_000 {
				v.Show(updates[i%7+1])
			}
			fmt.Fprintln(reports, "flooded in ", time.Since(began))
			continue
		case "log":
			fmt.Fprint(log, "a line of the ")
			fmt.Fprint(log, "log\x1b[2J\nhalf a line")
		case "log after":
			fmt.Fprintln(log, " and the rest")
		case "interrupt":
			<-interrupts
		case "done":
			v.Done()
			v.Done()
		}
		fmt.Fprintln(reports, orders.Text())
	}
	return 0
}
