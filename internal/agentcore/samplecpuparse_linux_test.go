package agentcore

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, line string
		want       stat
		bad        bool
	}{
		{"plain", "7 (sh) S 1 7 7 0 -1 4194304 103 0 0 0 11 22 33 44 20 0 1 0 420494 1 1", stat{330 * time.Millisecond, 770 * time.Millisecond}, false},
		{"a name like a stat line", "7 (a) S 1 2 (b) R) S 1 7 7 0 -1 4194304 103 0 0 0 1 2 3 4 20 0 1 0 420494 1 1", stat{30 * time.Millisecond, 70 * time.Millisecond}, false},
		{"short", "7 (sh) S 1 7 7", stat{}, true},
		{"no number", "7 (sh) S 1 7 7 0 -1 4194304 103 0 0 0 x 22 33 44 20 0 1 0", stat{}, true},
		{"empty", "", stat{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.line))
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("got %+v, %v; want %+v, error %t", got, err, tt.want, tt.bad)
			}
		})
	}
}
