package sqlite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// ofTheFile deal with SQLite's file and connections, and use what they like of it.
// Among that is the update hook (conn.watch), which tells changes.go what a commit
// changes: PostgreSQL has RETURNING for that.
var ofTheFile = []string{"backup.go", "check.go", "compact.go", "conn.go", "migrate.go", "open.go", "restore.go", "salvage.go"}

// dialect is what all other statements use of SQLite that PostgreSQL has not, or
// writes in another way.
var dialect = []struct {
	use     string // regular expression
	instead string // in PostgreSQL
}{
	{`INDEXED BY \w+`, "nothing: statistics choose the index"},
	{`CROSS JOIN`, "JOIN: SQLite takes CROSS as the order of its loops"},
	{`->> (\('\$.*'\)|'\$\.\w+')`, "->> 'name' and #>>, of a jsonb column"},
	{`\b(max|min)\(\w+, `, "greatest and least"},
	{`\binstr\(`, "strpos; it is a number there, and no truth"},
	{`\bsubstr\((\w\.)?\w+, -|\bsubstr\(lower\(e\.id\), -`, "right"},
	{`\?[0-9]`, "$1"},
	{`ON CONFLICT DO UPDATE`, "ON CONFLICT with the key's columns"},
	{`PRAGMA data_version`, "nothing: who writes has the epoch"},
}

// TestDialect: dialect lists what is used, and nothing else is used.
func TestDialect(t *testing.T) {
	var (
		statement = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|PRAGMA|FROM|WHERE|SET|AND|OR|CASE)\b`)
		standard  = regexp.MustCompile(`\b(coalesce|count|length|lower|max|min|substr|sum)\(`)
		special   = regexp.MustCompile(`\b[a-z_]+\(|PRAGMA|INSERT OR|rowid|->|GLOB`)
	)
	used := make([]bool, len(dialect))
	for name, texts := range literals(t) {
		if slices.Contains(ofTheFile, name) {
			continue
		}
		for _, text := range texts {
			if !statement.MatchString(text) {
				continue
			}
			rest := text
			for i, d := range dialect {
				next := regexp.MustCompile(d.use).ReplaceAllString(rest, "")
				used[i] = used[i] || next != rest
				rest = next
			}
			if other := special.FindString(standard.ReplaceAllString(rest, "")); other != "" {
				t.Errorf("%s: %q is not listed: %s", name, other, text)
			}
		}
	}
	for i, d := range dialect {
		if !used[i] {
			t.Errorf("%s is listed (%s), and nothing uses it", d.use, d.instead)
		}
	}
}

// literals returns the strings in each file of the package.
func literals(t *testing.T) map[string][]string {
	all := map[string][]string{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if match, _ := filepath.Match("*_test.go", name); match {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				text, err := strconv.Unquote(l.Value)
				if err != nil {
					t.Error(err)
				}
				all[name] = append(all[name], text)
			}
			return true
		})
	}
	return all
}
