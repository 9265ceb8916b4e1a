package job

import (
	"regexp"
	"strings"
	"testing"
)

func TestTraceParent(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	first, second := TraceParent(trace, "j", 1), TraceParent(trace, "j", 2)
	if !regexp.MustCompile(`^00-`+trace+`-[0-9a-f]{16}-01$`).MatchString(first) || first == second || first != TraceParent(trace, "j", 1) {
		t.Errorf("%s, then %s", first, second)
	}
	for _, bad := range []string{"", "t-1", strings.ToUpper(trace), strings.Repeat("0", 32), trace + "00", strings.Repeat("g", 32)} {
		if got := TraceParent(bad, "j", 1); got != "" {
			t.Errorf("trace %q: %s", bad, got)
		}
	}
}
