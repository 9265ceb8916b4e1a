package durable_test

import (
	"context"
	"fmt"

	"github.com/agentsched/agentsched/workflow/durable"
)

// Two processes run one program on one store, the second since the first was
// killed after its first step.
func ExampleStep() {
	store := newMemory() // a *sqlite.Store, as a rule
	program := func(ctx context.Context, killed bool) {
		ctx = durable.With(ctx, durable.New(durable.Config{Store: store, Space: durable.Space("01a1fcce-6b90-7022-94af-83e4d513c5ef")}))
		count, err := durable.Step(ctx, "count", func(context.Context) (int, error) {
			fmt.Println("counting")
			return 3, nil
		})
		if err != nil || killed {
			return
		}
		text, err := durable.StepOf(ctx, "report", count, func(context.Context) (string, error) {
			fmt.Println("reporting")
			return fmt.Sprintf("%d files", count), nil
		})
		fmt.Println(text, err)
	}
	program(context.Background(), true)
	program(context.Background(), false)
	// Output:
	// counting
	// reporting
	// 3 files <nil>
}
