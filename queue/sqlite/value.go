package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// The first and last moments that nanoseconds in 64 bits can name. Times
// outside are stored as these; the earlier one reads back as the zero time.
const (
	earliest = math.MinInt64
	latest   = math.MaxInt64
)

// nanos returns t as the store keeps it.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, earliest)):
		return earliest
	case t.After(time.Unix(0, latest)):
		return latest
	}
	return t.UnixNano()
}

// moment is the inverse of nanos.
func moment(n int64) time.Time {
	if n == earliest {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// encode returns v as JSON.
func encode(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", v, err)
	}
	return string(text), nil
}

// decode reads JSON that encode wrote; "" leaves v as it is.
func decode(text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode stored %T: %w", v, err)
	}
	return nil
}
