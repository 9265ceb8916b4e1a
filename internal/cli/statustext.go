package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
)

// orDash formats a value that is known.
func orDash(known bool, format string, value any) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf(format, value)
}

// ago is how long t lies back.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return max(now.Sub(t), 0).Round(time.Second).String()
}

// clock is a time of day, with its date unless that is today's.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// sizeText is a number of bytes, e.g. "23.4 MiB".
func sizeText(n int64) string {
	v := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if v < 999.5 { // of three digits
			return fmt.Sprintf("%.3g %s", v, unit)
		}
		v /= 1024
	}
	return fmt.Sprintf("%.3g TiB", v)
}

// quoteScope is a scope as it is typed in a shell.
func quoteScope(s string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-+@%", r)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// metric is one value under its name on the wire.
type metric struct{ name, value string }

// metricsOf reads the metrics of a core in the order in which it wrote them,
// and over how long rates and latencies are taken. What is counted by kind of
// worker follows, as name{worker="kind"}.
func metricsOf(text json.RawMessage) (list []metric, window time.Duration, err error) {
	var all struct {
		WindowMS int64                      `json:"window_ms"`
		Workers  map[string]json.RawMessage `json:"workers"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, 0, fmt.Errorf("read a core's metrics: %w", err)
	}
	top, err := members(text)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range top {
		if m.name != "time" && m.name != "window_ms" && m.name != "workers" {
			list = append(list, metric{m.name, metricText(json.RawMessage(m.value))})
		}
	}
	kinds := make([]string, 0, len(all.Workers))
	for kind := range all.Workers {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		of, err := members(all.Workers[kind])
		if err != nil {
			return nil, 0, err
		}
		for _, m := range of {
			list = append(list, metric{fmt.Sprintf("%s{worker=%q}", m.name, kind), metricText(json.RawMessage(m.value))})
		}
	}
	return list, time.Duration(all.WindowMS) * time.Millisecond, nil
}

// members returns the members of a JSON object in their order.
func members(object json.RawMessage) ([]metric, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	var list []metric
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("read a core's metrics: %w", err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("read a core's metrics: %w", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("read a core's metrics: %w", err)
		}
		list = append(list, metric{fmt.Sprint(name), string(value)})
	}
	return list, nil
}

// metricText is a number as it is, a distribution, or a rate.
func metricText(value json.RawMessage) string {
	var v struct {
		P50, P95, Max, Of *int64
		Count             int64
		Ratio             float64
	}
	switch {
	case string(value) == "null":
		return "-"
	case json.Unmarshal(value, &v) != nil:
		if f, err := strconv.ParseFloat(string(value), 64); err == nil && f != math.Trunc(f) {
			return fmt.Sprintf("%.3g", f)
		}
		return string(value)
	case v.P95 != nil && v.P50 != nil && v.Max != nil:
		if v.Count == 0 {
			return "-"
		}
		return fmt.Sprintf("p50 %d, p95 %d, max %d (of %d)", *v.P50, *v.P95, *v.Max, v.Count)
	case v.Of != nil:
		return fmt.Sprintf("%.3g (%d of %d)", v.Ratio, v.Count, *v.Of)
	}
	return string(value)
}

// printShares writes how the tenants stand towards the policy's targets.
func printShares(w io.Writer, st *api.Status) error {
	if len(st.Shares) == 0 {
		return nil
	}
	return section(w, "TENANT (policy "+st.Policy+")\tTARGET\tSHARE\tRUNS\tTOKENS\tCOST\tWAITS\tHELD", func(w io.Writer) {
		for _, s := range st.Shares {
			waits := "-"
			if s.Waiting {
				waits = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%.1f%%\t%d\t%.0f\t$%.2f\t%s\t%s\n",
				s.Tenant, orDash(s.Target > 0, "%.1f%%", 100*s.Target), 100*s.Actual, s.InFlight, s.Used.Tokens, s.Used.CostUSD, waits, orDash(s.Held != "", "%s", s.Held))
		}
	})
}

// printMetrics writes a row for each metric and a column for each core.
func printMetrics(w io.Writer, cores []api.Core) error {
	var names []string
	var window time.Duration
	head := ""
	var columns []map[string]string
	for i := range cores {
		if len(cores[i].Metrics) == 0 {
			continue
		}
		list, over, err := metricsOf(cores[i].Metrics)
		if err != nil {
			return err
		}
		column := map[string]string{}
		for _, m := range list {
			if !slices.Contains(names, m.name) {
				names = append(names, m.name)
			}
			column[m.name] = m.value
		}
		columns, window = append(columns, column), over
		head += "\tCORE " + cores[i].Name()
	}
	if len(columns) == 0 {
		return nil
	}
	return section(w, fmt.Sprintf("METRIC (over %s)%s", window, head), func(w io.Writer) {
		for _, name := range names {
			row := name
			for _, c := range columns {
				value, ok := c[name]
				row += "\t" + orDash(ok, "%s", value)
			}
			fmt.Fprintln(w, row)
		}
	})
}
