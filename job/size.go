package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It reads and writes as a text with a unit of 1024,
// e.g. "512MiB", in job files, in JSON and in the store.
type Size int64

// units from the largest to the smallest.
var units = []struct {
	name  string
	bytes Size
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String returns s in the largest unit that leaves no fraction.
func (s Size) String() string {
	for _, u := range units {
		if s%u.bytes == 0 && s != 0 {
			return fmt.Sprintf("%d%s", int64(s/u.bytes), u.name)
		}
	}
	return "0B"
}

// MarshalText writes s as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a whole number of bytes, with a unit or without.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := string(text), Size(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSuffix(n, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return fmt.Errorf("%q is not a size, want a whole number of bytes or one with a unit such as 512MiB or 2GiB", text)
	}
	if n > uint64(math.MaxInt64/unit) {
		return fmt.Errorf("%q is too large", text)
	}
	*s = Size(n) * unit
	return nil
}
