package statedir

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/job"
)

// TestCacheName checks that each tenant has a folder of its own, whatever its name.
func TestCacheName(t *testing.T) {
	d := At("/state", "i")
	for tenant, want := range map[job.Tenant]string{
		"website": "website", "a.b_c-1": "a.b_c-1", job.DefaultTenant: "default",
		"": "", ".": "", "..": "", "../../etc": "", "/etc": "", "Website": "", "a/b": "", "ünder": "", ".hidden": "", "+x": "", "a\x00b": "",
		job.Tenant(strings.Repeat("x", 300)): "",
	} {
		got := d.Cache(tenant)
		name := filepath.Base(got)
		if filepath.Dir(got) != "/state/cache" || want != "" && name != want || want == "" && (!strings.HasPrefix(name, "+") || len(name) != 33) {
			t.Errorf("%q: %s", tenant, got)
		}
	}
	if d.Cache("A") == d.Cache("a") || d.Cache("A") == d.Cache("B") {
		t.Error("two tenants have one cache")
	}
}
