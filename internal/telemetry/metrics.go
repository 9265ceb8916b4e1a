package telemetry

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Kinds of metrics.
const (
	counterKind   = "counter"
	gaugeKind     = "gauge"
	histogramKind = "histogram"
)

// metric describes a metric.
type metric struct {
	name, kind, help string
	labels           []string
}

func newMetric(kind, name, help string, labels ...string) *metric {
	return &metric{"agentsched_" + name, kind, help, labels}
}

// counter is a metric that this process counts.
type counter struct {
	*metric
	mu     sync.Mutex
	series map[string]float64 // by the text of their labels
}

func newCounter(name, help string, labels ...string) *counter {
	c := &counter{metric: newMetric(counterKind, name, help, labels...), series: map[string]float64{}}
	if len(labels) == 0 {
		c.add(0) // what has not happened yet is 0, not absent
	}
	return c
}

// add raises the series of the labels' values, which begins to exist with that.
func (c *counter) add(n float64, values ...string) {
	key := labelText(c.labels, values)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.series[key] += n
}

func (c *counter) collect(p *page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range c.series {
		p.line(c.metric, c.name, key, n)
	}
}

// histogram counts observations by their size.
type histogram struct {
	*metric
	bounds []float64 // ascending
	mu     sync.Mutex
	series map[string]*distribution // by the value of the one label
}

type distribution struct {
	counts []float64 // for each bound, and one for what is beyond the last
	sum    float64
}

func newHistogram(name, help, label string, bounds ...float64) *histogram {
	return &histogram{metric: newMetric(histogramKind, name, help, label), bounds: bounds, series: map[string]*distribution{}}
}

func (h *histogram) observe(v float64, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.series[value]
	if d == nil {
		d = &distribution{counts: make([]float64, len(h.bounds)+1)}
		h.series[value] = d
	}
	at, _ := slices.BinarySearch(h.bounds, v) // the first bound that is not below v
	d.counts[at]++
	d.sum += v
}

func (h *histogram) collect(p *page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, value := range slices.Sorted(maps.Keys(h.series)) {
		d, n := h.series[value], 0.0
		for i, count := range d.counts {
			le := "+Inf"
			if i < len(h.bounds) {
				le = numeral(h.bounds[i])
			}
			n += count
			p.line(h.metric, h.name+"_bucket", labelText([]string{h.labels[0], "le"}, []string{value, le}), n)
		}
		key := labelText(h.labels, []string{value})
		p.line(h.metric, h.name+"_sum", key, d.sum)
		p.line(h.metric, h.name+"_count", key, n)
	}
}

// collector adds what it knows to the answer of a scrape.
type collector interface{ collect(*page) }

// constant is a series that stays as it is.
type constant struct {
	*metric
	value  float64
	labels []string
}

func (c constant) collect(p *page) { p.put(c.metric, c.value, c.labels...) }

// page is the answer to a scrape, in Prometheus's text format, version 0.0.4.
type page struct{ lines map[*metric][]string }

// put adds a series of a metric.
func (p *page) put(m *metric, value float64, labels ...string) {
	p.line(m, m.name, labelText(m.labels, labels), value)
}

func (p *page) line(m *metric, name, labels string, value float64) {
	p.lines[m] = append(p.lines[m], name+labels+" "+numeral(value)+"\n")
}

func (p *page) text() []byte {
	var b bytes.Buffer
	for _, m := range slices.SortedFunc(maps.Keys(p.lines), func(a, b *metric) int { return strings.Compare(a.name, b.name) }) {
		lines := p.lines[m]
		if m.kind != histogramKind { // whose buckets are in order
			slices.Sort(lines)
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s", m.name, m.help, m.name, m.kind, strings.Join(lines, ""))
	}
	return b.Bytes()
}

func numeral(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// labelEscapes is built once, since it takes longer than what it replaces.
var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labelText writes labels as a series has them.
func labelText(names, values []string) string {
	if len(names) == 0 {
		return ""
	}
	pairs := make([]string, len(names))
	for i, name := range names {
		pairs[i] = name + `="` + labelEscapes.Replace(strings.ToValidUTF8(values[i], "\uFFFD")) + `"`
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// ServeHTTP answers a scrape.
func (t *Telemetry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &page{lines: map[*metric][]string{}}
	for _, c := range t.collectors {
		c.collect(p)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close() //nolint:errcheck // the client has gone
		out = z
	}
	out.Write(p.text()) //nolint:errcheck // likewise
}
