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
// changes: PostgreSQL has RETURNING for that, as for the number of a new row.
var ofTheFile = []string{"backup.go", "check.go", "compact.go", "conn.go", "db.go", "migrate.go", "open.go", "restore.go", "salvage.go"}

// dialect makes of all other statements what PostgreSQL takes.
var dialect = []struct{ sqlite, postgres string }{
	{` ?(NOT INDEXED|INDEXED BY \w+)`, ``}, // statistics choose the index
	{`\b(\w\.(?:spec|outcome)) ->`, `$1::jsonb ->`},
	{`\binstr\(`, `strpos(`},
	{`\?(\d)`, `$$$1`}, // and ? is the next number
}

// TestDialect: dialect lists what is used, and nothing else of SQLite is.
func TestDialect(t *testing.T) {
	var (
		statement = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|BEGIN|PRAGMA|FROM|WHERE|SET|AND|OR|CASE)\b`)
		standard  = regexp.MustCompile(`\b(coalesce|count|length|lower|max|min|strpos|substr|sum|CAST)\(|::jsonb( ->>? (\([^)]*\)|'\w+'))+`)
		special   = regexp.MustCompile(`\b[a-z_]+\(|PRAGMA|INSERT OR|ON CONFLICT DO UPDATE|IMMEDIATE|rowid|->|GLOB|INDEXED|JOIN \w+ \w ON`)
		greatest  = regexp.MustCompile(`\b(max|min)\(\w+, `)
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
				next := regexp.MustCompile(d.sqlite).ReplaceAllString(rest, d.postgres)
				used[i] = used[i] || next != rest
				rest = next
			}
			if other := greatest.FindString(rest) + special.FindString(standard.ReplaceAllString(rest, "")); other != "" {
				t.Errorf("%s: %q is not listed: %s", name, other, text)
			}
		}
	}
	for i, d := range dialect {
		if !used[i] {
			t.Errorf("%s is listed, and nothing uses it", d.sqlite)
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
