package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
)

// TestAgain: what no leader has taken is sent again, as it was, when the answer says so, and only where that does
// nothing twice.
func TestAgain(t *testing.T) {
	get := func(ctx context.Context, c *client.Client) error { _, err := c.Status(ctx); return err }
	pause := func(ctx context.Context, c *client.Client) error {
		_, err := c.Pause(ctx, api.Pause{Scope: "worker:shell"})
		return err
	}
	keyed := func(ctx context.Context, c *client.Client) error {
		_, err := c.Submit(ctx, api.Submission{Source: "s"}, client.WithKey("k"))
		return err
	}
	for _, tt := range []struct {
		what, problem, taken, after string
		status                      int
		ask                         func(context.Context, *client.Client) error
		again                       bool
	}{
		{"a read, and nobody leads", "no_leader", "", "0", 503, get, true},
		{"a read, and no database", "no_database", "", "0", 503, get, true},
		{"a read of what is not there", "not_found", "", "0", 404, get, false},
		{"a read that is to come again late", "no_leader", "", "3600", 503, get, false},
		{"a change that nobody has taken", "no_leader", "no", "0", 503, pause, true},
		{"a change that a leader was in the midst of", "no_leader", "", "0", 503, pause, false},
		{"a change whose answer is lost", "outcome_unknown", "", "0", 502, pause, false},
		{"a change by one that ends", "ending", "", "0", 503, pause, false},
		{"with a key, in the midst of", "no_leader", "", "0", 503, keyed, true},
		{"with a key, whose answer is lost", "outcome_unknown", "", "0", 502, keyed, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var bodies []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if bodies = append(bodies, r.Method+" "+r.URL.Path+string(body)); len(bodies) == 3 {
					io.WriteString(w, "{}") //nolint:errcheck // the test fails then
					return
				}
				w.Header().Set("Retry-After", tt.after)
				if tt.taken != "" {
					w.Header().Set(client.TakenHeader, tt.taken)
				}
				w.WriteHeader(tt.status)
				io.WriteString(w, `{"type":"`+api.ProblemType+tt.problem+`","detail":"not now"}`) //nolint:errcheck // the test fails then
			}))
			defer s.Close()
			c, err := client.Dial(client.Options{URL: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			err = tt.ask(t.Context(), c)
			want := 1
			if tt.again {
				want = 3
			}
			var refused *api.Problem
			if len(bodies) != want || bodies[0] != bodies[len(bodies)-1] || tt.again != (err == nil) || !tt.again && !errors.As(err, &refused) {
				t.Errorf("asked %q, %v", bodies, err)
			}
		})
	}
}
