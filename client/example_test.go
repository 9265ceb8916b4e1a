package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/job"
)

// A job is submitted, with a key so that the request may be sent again, and
// followed until it has ended.
func Example() {
	stop, path := running()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c := client.New(path) // of the state directory: scheduler.sock
	defer c.Close()
	in := api.Submission{Source: "example", Jobs: []job.Spec{{
		Name: "list-files", Tenant: "docs", Type: job.Tool, Worker: "shell", Instructions: "ls",
		Workspace: job.Workspace{Isolation: job.NoWorkspace},
	}}}
	for range 2 { // once more, as after an answer that was lost
		jobs, err := c.Submit(ctx, in, client.WithKey("example-1"))
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(len(jobs.Jobs), jobs.Jobs[0].Spec.Name, jobs.Jobs[0].State)
	}
	for told, err := range c.Follow(ctx, "list-files", client.FollowOptions{}) {
		if err != nil {
			log.Print(err)
			return
		}
		if told.Job == nil {
			continue
		}
		fmt.Println("is", told.Job.State)
		if told.Job.State == job.Queued {
			if _, err := c.Cancel(ctx, "list-files"); err != nil {
				log.Print(err)
				return
			}
		}
	}
	_, err := c.Job(ctx, "nobody")
	if p, ok := errors.AsType[*api.Problem](err); ok {
		fmt.Println(p.Status, p.Name())
	}
	// Output:
	// 1 list-files queued
	// 1 list-files queued
	// is queued
	// is cancelled
	// 404 not_found
}

// Over TCP a client has a token, and the server's certificate is checked.
func ExampleDial() {
	_, err := client.Dial(client.Options{URL: "http://build.example.com:7433", Token: "secret"})
	fmt.Println(err)
	c, err := client.Dial(client.Options{URL: "https://build.example.com:7433", Token: "secret"})
	if err != nil {
		log.Print(err)
		return
	}
	defer c.Close()
	// Output:
	// URL is "http://build.example.com:7433", want https beyond this machine: a token must not travel in clear text
}
