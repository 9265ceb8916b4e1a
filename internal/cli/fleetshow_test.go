package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/api"
)

func TestPrintFleet(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.Local)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	f := api.Fleet{
		Instance: "01a1fcce-7a7a-7000-8000-00000000000b",
		Members: []api.FleetMember{
			{Instance: "01a1fcce-7a7a-7000-8000-00000000000a", Host: "one", Address: "one:7434", Role: api.FleetLeader, Since: before(time.Hour), Version: "1.2", Config: "c1", Seen: before(time.Second)},
			{Instance: "01a1fcce-7a7a-7000-8000-00000000000b", Host: "two", Address: "two:7434", Role: api.FleetStandby, Since: before(2 * time.Hour), Version: "1.2", Config: "c1", Seen: before(2 * time.Second)},
			{Instance: "short", Host: "three\x1b[2J", Role: api.FleetStandby, Version: "1.1", Config: "c2"},
		},
		Leader: &api.FleetTerm{Epoch: 7, Instance: "01a1fcce-7a7a-7000-8000-00000000000a", Host: "one", Since: before(time.Hour), Why: "two has not renewed its lease for 5s"},
	}
	show := func() string {
		var out bytes.Buffer
		if err := printFleet(&out, &f, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := `SCHEDULER  HOST   ROLE     SINCE   SEEN  VERSION  CONFIG   ADDRESS
0000000a   one    leader   1h0m0s  1s    1.2      same     one:7434
0000000b   two    standby  2h0m0s  2s    1.2      same     two:7434
short      three  standby  -       -     1.1      differs  -

0000000a on one leads since 11:00:00: two has not renewed its lease for 5s
`
	if got := trimLines(show()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	f.Leader, f.Members[0].Role = nil, api.FleetStandby
	if got := show(); !strings.Contains(got, "nobody leads") || strings.Contains(got, "differs") || !strings.Contains(got, "c2") {
		t.Errorf("without a leader:\n%s", got)
	}
}

func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func TestWhyOf(t *testing.T) {
	hosts := map[string]string{"": "nowhere", "01a1fcce-7a7a-7000-8000-00000000000a": "one", "01a1fcce-7a7a-7000-8000-00000000000b": ""}
	for reason, want := range map[string]string{
		"nobody has led before": "nobody has led before",
		"01a1fcce-7a7a-7000-8000-00000000000a has not renewed its lease for 5s": "0000000a on one has not renewed its lease for 5s",
		"01a1fcce-7a7a-7000-8000-00000000000b has given up the lead":            "0000000b has given up the lead",
	} {
		if got := whyOf(reason, hosts); got != want {
			t.Errorf("%q becomes %q; want %q", reason, got, want)
		}
	}
}
