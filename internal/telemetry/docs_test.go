package telemetry_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/agentsched/agentsched/internal/telemetry"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the names in testdata")

// exported returns all metrics, with traces on.
func exported(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	tel := whole(t, telemetry.Config{OTLP: telemetry.OTLP{Endpoint: newCollector(t).URL}})
	defer shutdown(t, tel)
	list, err := scrape(tel).Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range list {
		all[f.GetName()] = f
	}
	return all
}

// labelsOf returns the names of a metric's labels.
func labelsOf(f *dto.MetricFamily) []string {
	names := map[string]bool{}
	for _, m := range f.Metric {
		for _, l := range m.Label {
			names[l.GetName()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestDocs: the page of docs has each metric, with its type and its labels, and no
// other.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(agentsched_[a-z0-9_]+)` \\| ([a-z]+) \\|([^|]*)\\|[^|]*\\| [^|]{10,} \\|$").FindAllStringSubmatch(string(text), -1) {
		labels := regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1)
		var names []string
		for _, l := range labels {
			names = append(names, l[1])
		}
		slices.Sort(names)
		rows[row[1]] = fmt.Sprint(row[2], " ", names)
	}
	for name, f := range exported(t) {
		if !strings.HasPrefix(name, "agentsched_") {
			continue
		}
		want := fmt.Sprint(strings.ToLower(f.GetType().String()), " ", labelsOf(f))
		if rows[name] != want {
			t.Errorf("%s is %q on the page, want %q", name, rows[name], want)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s is on the page and not exported", name)
	}
}

// TestGoldenMetrics: the metrics, their types and labels are those that were
// recorded. Dashboards and alerts of others name them: they change by additions only.
func TestGoldenMetrics(t *testing.T) {
	var lines []string
	for name, f := range exported(t) {
		if strings.HasPrefix(name, "agentsched_") {
			lines = append(lines, fmt.Sprintf("%s %s %v\n", name, strings.ToLower(f.GetType().String()), labelsOf(f)))
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "")
	const file = "testdata/metrics.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("%s differs, -rewrite writes it (%v); got:\n%s", file, err, got)
	}
}

// TestDashboard: each expression asks for metrics and labels that there are, and no
// metric of the project is left out.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/agentsched.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		SchemaVersion int    `json:"schemaVersion"`
		UID           string `json:"uid"`
		Panels        []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.SchemaVersion != 42 || board.UID == "" {
		t.Errorf("schema version %d, uid %q", board.SchemaVersion, board.UID)
	}
	all := exported(t)
	metric := regexp.MustCompile(`\b(agentsched|go|process)_[a-z0-9_]+`)
	byLabels := regexp.MustCompile(`\bby \(([^)]*)\)`)
	legend := regexp.MustCompile(`{{(\w+)}}`)
	scope := regexp.MustCompile(`{([^}]*)}`)
	matcher := regexp.MustCompile(`(\w+)(?:=~|!=|=)`)
	used, ids := map[string]bool{}, map[int]bool{}
	check := func(where, expr, shown string) {
		t.Helper()
		if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") || strings.Count(expr, `"`)%2 != 0 {
			t.Errorf("%s: %s is not balanced", where, expr)
		}
		there := []string{"job", "instance", "le"}
		for _, name := range metric.FindAllString(expr, -1) {
			if base := strings.TrimSuffix(name, "_bucket"); all[base] != nil && all[base].GetType() == dto.MetricType_HISTOGRAM {
				name = base
			}
			if all[name] == nil {
				t.Errorf("%s: %s is not exported", where, name)
				continue
			}
			used[name] = true
			there = append(there, labelsOf(all[name])...)
		}
		var asked []string
		for _, m := range byLabels.FindAllStringSubmatch(expr, -1) {
			asked = append(asked, strings.Split(m[1], ", ")...)
		}
		for _, m := range scope.FindAllStringSubmatch(expr, -1) {
			for _, l := range matcher.FindAllStringSubmatch(m[1], -1) {
				asked = append(asked, l[1])
			}
		}
		for _, m := range legend.FindAllStringSubmatch(shown, -1) {
			asked = append(asked, m[1])
		}
		for _, label := range asked {
			if !slices.Contains(there, label) {
				t.Errorf("%s: %s has no label %q", where, expr, label)
			}
		}
	}
	for _, p := range board.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("panel %q: id %d, place %+v", p.Title, p.ID, p.GridPos)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			check(p.Title, target.Expr, target.LegendFormat)
		}
	}
	for _, v := range board.Templating.List {
		if v.Definition != "" {
			query, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(v.Definition, "label_values("), ")"), ", ")
			check("variable "+v.Name, query, "{{"+label+"}}")
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "agentsched_") && !used[name] {
			t.Errorf("no panel has %s", name)
		}
	}
}
