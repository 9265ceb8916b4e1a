package server_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestComments: comments.txt, by which the OpenAPI document describes types and
// fields, is what the code says today, and says something of each type and field of
// package api. -rewrite writes it.
func TestComments(t *testing.T) {
	var lines []string
	for _, pkg := range []string{"api", "job"} {
		files, err := filepath.Glob("../../" + pkg + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of package %s: %v", pkg, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, commentsOf(t, pkg, f)...)
		}
	}
	slices.Sort(lines)
	text := strings.Join(lines, "")
	const file = "comments.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != text {
		t.Errorf("%s is not what the comments of packages api and job say (%v); go test ./internal/server -run TestComments -rewrite writes it", file, err)
	}
}

// commentsOf returns a line for each type and field of a file that has a comment.
func commentsOf(t *testing.T, pkg string, f *ast.File) (lines []string) {
	add := func(name string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				lines = append(lines, pkg+"."+name+"\t"+text+"\n")
				return
			}
		}
		if _, field, ok := strings.Cut(name, "."); pkg == "api" && (!ok || ast.IsExported(field)) {
			t.Errorf("%s.%s has no comment: it is the description in the OpenAPI document", pkg, name)
		}
	}
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.TYPE {
			continue
		}
		for _, spec := range d.Specs {
			s := spec.(*ast.TypeSpec)
			if !s.Name.IsExported() {
				continue
			}
			add(s.Name.Name, s.Doc, d.Doc)
			body, ok := s.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range body.Fields.List {
				for _, name := range field.Names {
					add(s.Name.Name+"."+name.Name, field.Doc, field.Comment)
				}
			}
		}
	}
	return lines
}

// TestDescriptions: each shape of a body is described, and each of its fields.
func TestDescriptions(t *testing.T) {
	d := open(t, 0)
	schemas := d.schemas()
	if len(schemas) < 80 {
		t.Errorf("there are only %d shapes", len(schemas))
	}
	seen := 0
	for name, s := range schemas {
		if s.Description == "" {
			t.Errorf("%s is not described", name)
		}
		for field, p := range s.Properties {
			if seen++; p.Description == "" && p.Ref == "" {
				t.Errorf("%s.%s is not described", name, field)
			}
		}
	}
	t.Logf("%d shapes, %d fields", len(schemas), seen)
}

// shape is what the tests look at of a schema.
type shape struct {
	Ref         string           `json:"$ref"`
	Description string           `json:"description"`
	Properties  map[string]shape `json:"properties"`
}

func (d *served) schemas() map[string]shape {
	d.t.Helper()
	var doc struct {
		Components struct {
			Schemas map[string]shape `json:"schemas"`
		} `json:"components"`
	}
	d.ask("GET", "/openapi.json", 200, &doc)
	return doc.Components.Schemas
}
