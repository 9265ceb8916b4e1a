package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// row is one line of the table, as it is printed.
type row struct {
	what, ours, peer, ratio, target, reached string
}

// bound is a target for ours divided by the peer's, or for ours alone. Of least
// and most at most one is set.
type bound struct {
	least, most float64
	unit        string
}

func (b bound) String() string {
	switch {
	case b.least > 0:
		return fmt.Sprintf(">= %g%s", b.least, b.unit)
	case b.most > 0:
		return fmt.Sprintf("<= %g%s", b.most, b.unit)
	}
	return "-"
}

func (b bound) reached(value float64) string {
	switch {
	case b.least == 0 && b.most == 0:
		return "-"
	case value >= b.least && (b.most == 0 || value <= b.most):
		return "yes"
	}
	return "NO"
}

// times bounds a ratio.
func atLeast(ratio float64) bound { return bound{least: ratio, unit: " x"} }
func atMost(ratio float64) bound  { return bound{most: ratio, unit: " x"} }

// rates is a row of two rates a second.
func rates(what string, ours sample, name string, peer sample, target bound) row {
	return ratioRow(what, showRate(ours), name+" "+showRate(peer), ours.median()/peer.median(), target)
}

// latencies is a row of two durations in seconds.
func latencies(what string, ours sample, name string, peer sample, target bound) row {
	return ratioRow(what, showTime(ours), name+" "+showTime(peer), ours.median()/peer.median(), target)
}

func ratioRow(what, ours, peer string, ratio float64, target bound) row {
	return row{what, ours, peer, fmt.Sprintf("%.2f x", ratio), target.String(), target.reached(ratio)}
}

// leftOut is a row of a peer that could not be asked.
func leftOut(what, peer string, why error) row {
	return row{what: what, ours: "-", peer: peer + " left out: " + why.Error(), ratio: "-", target: "-", reached: "-"}
}

func showRate(s sample) string {
	return fmt.Sprintf("%.0f/s %s", s.median(), showSpread(s))
}

func showTime(s sample) string {
	switch t := s.median(); {
	case t < 1e-3:
		return fmt.Sprintf("%.0f µs %s", t*1e6, showSpread(s))
	case t < 1:
		return fmt.Sprintf("%.1f ms %s", t*1e3, showSpread(s))
	default:
		return fmt.Sprintf("%.2f s %s", t, showSpread(s))
	}
}

func showSpread(s sample) string { return fmt.Sprintf("(±%.0f%%)", s.spread()*50) }

func printRows(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nwhat\tours\tpeer\tratio\ttarget\treached")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.ours, r.peer, r.ratio, r.target, r.reached)
	}
	t.Flush()
}
