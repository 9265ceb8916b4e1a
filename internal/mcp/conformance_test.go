package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentsched/agentsched/internal/access"
	"github.com/agentsched/agentsched/internal/testrun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenarios are those of the suite for servers. internal/e2e runs those that call nothing by name at the /mcp of a scheduler, too.
var scenarios = []string{
	"completion-complete", "dns-rebinding-protection", "elicitation-sep1034-defaults", "elicitation-sep1330-enums", "json-schema-2020-12", "logging-set-level",
	"ping", "prompts-get-embedded-resource", "prompts-get-simple", "prompts-get-with-args", "prompts-get-with-image", "prompts-list",
	"resources-list", "resources-read-binary", "resources-read-text", "resources-subscribe", "resources-templates-read", "resources-unsubscribe",
	"server-initialize", "server-sse-multiple-streams", "server-sse-polling", "tools-call-audio", "tools-call-elicitation", "tools-call-embedded-resource",
	"tools-call-error", "tools-call-image", "tools-call-mixed-content", "tools-call-sampling", "tools-call-simple-text", "tools-call-with-logging",
	"tools-call-with-progress", "tools-list",
}

// handler returns a handler for a user who may do everything.
func handler(t *testing.T, opt Options, routes http.Handler) *Handler {
	h := NewHandler(HandlerOptions{Options: opt, Routes: routes, Who: func(context.Context) (string, string) { return "tcp:olga", operate }})
	t.Cleanup(h.Close)
	return h
}

// TestConformance: the whole suite passes at the handler behind the guard of the API, with what the suite calls by
// name beside the scheduler's own tools.
func TestConformance(t *testing.T) {
	guard, err := access.NewGuard(access.GuardConfig{Door: access.TCP})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(guard.Handler(handler(t, Options{settings: fixtureSettings, more: addFixtures}, http.NotFoundHandler())))
	defer s.Close()
	passed := testrun.Conformance(t, "../../.cache", s.URL+"/mcp", "")
	if slices.Sort(passed); !t.Failed() && !slices.Equal(passed, scenarios) {
		t.Errorf("passed: %q\nwant %q", passed, scenarios)
	}
}
