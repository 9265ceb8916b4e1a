package mcp

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// connect returns a session of a client with a server of a role.
func connect(t *testing.T, opt Options, role string, routes http.Handler) *sdk.ClientSession {
	t.Helper()
	return connectAs(t, opt, role, routes, nil)
}

// TestDocs: docs/mcp.md names each tool, and no other.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\|").FindAllSubmatch(page, -1) {
		for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(row[1], -1) {
			documented = append(documented, string(name[1]))
		}
	}
	list, err := connect(t, Options{Apply: func(context.Context, Apply) (Applied, error) { return Applied{}, nil }}, operate, http.NotFoundHandler()).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	if slices.Sort(documented); !slices.Equal(names, documented) {
		t.Errorf("docs/mcp.md has %q, and there are %q", documented, names)
	}
}
