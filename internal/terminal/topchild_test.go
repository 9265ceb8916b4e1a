package terminal

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// topChild is set for a child process of a test, which shows the view.
const topChild = "TOP_TEST_CHILD"

func runTopChild() int {
	f := &fake{picture: busyPicture()}
	e := api.Event{Cursor: 1}
	e.Event.Kind, e.Event.Text, e.Event.Time = job.EventText, "it has begun", topNoon
	f.events = append(f.events, e)
	opts := TopOptions{Colour: os.Getenv("NO_COLOR") == "", Now: func() time.Time { return topNoon }, Zone: time.UTC}
	if err := RunTop(context.Background(), os.Stdin, os.Stdout, os.Getenv("TERM"), f, opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
