package main

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"strings"
)

// apart are folders whose Go is counted in no figure: other modules, examples, and
// what only tests import.
var apart = map[string]bool{
	"bench": true, "examples": true, "testdata": true, "node_modules": true,
	"queuetest": true, "workertest": true, "pgtest": true, "terminaltest": true, "testrun": true, "schematest": true, "faults": true,
}

// source is what was counted in the Go files outside tests. A package is named by its
// folder, a type by its package and name, as in "internal/server.Server".
type source struct {
	code, comments map[string]int             // lines, by package; a line that has both is code
	methods        map[string]map[string]bool // names, by type: once, if it differs by system
	mutexes        map[string]int             // by package, and by type
	parts          map[string]bool            // the interfaces of package queue, as in "queue.Ledger"
	asserted       map[string]int             // how often, by type
}

// read counts the files below root.
func read(root fs.FS) (*source, error) {
	s := &source{map[string]int{}, map[string]int{}, map[string]map[string]bool{}, map[string]int{}, map[string]bool{}, map[string]int{}}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (apart[d.Name()] || len(d.Name()) > 1 && d.Name()[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.countLines(path.Dir(name), text)
		s.countSyntax(path.Dir(name), file)
		return nil
	})
	return s, err
}

func (s *source) countLines(pkg string, text []byte) {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var scan scanner.Scanner
	scan.Init(file, text, nil, scanner.ScanComments)
	code, comments := map[int]bool{}, map[int]bool{}
	for {
		pos, tok, lit := scan.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // not written: it ends the line
		}
		into := code
		if tok == token.COMMENT {
			into = comments
		}
		for i := range strings.Count(lit, "\n") + 1 {
			into[file.Line(pos)+i] = true
		}
	}
	s.code[pkg] += len(code)
	for line := range comments {
		if !code[line] {
			s.comments[pkg]++
		}
	}
}

func (s *source) countSyntax(pkg string, file *ast.File) {
	assert := func(e ast.Expr) {
		name := types.ExprString(e)
		if pkg == "queue" {
			name = "queue." + name
		}
		s.asserted[name]++
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				name, _, _ := strings.Cut(types.ExprString(n.Recv.List[0].Type), "[")
				name = pkg + "." + strings.TrimPrefix(name, "*")
				if s.methods[name] == nil {
					s.methods[name] = map[string]bool{}
				}
				s.methods[name][n.Name.Name] = true
			}
		case *ast.TypeSpec:
			if _, ok := n.Type.(*ast.InterfaceType); ok && pkg == "queue" {
				s.parts["queue."+n.Name.Name] = true
			}
			s.mutexes[pkg+"."+n.Name.Name] += mutexes(n)
		case *ast.File:
			s.mutexes[pkg] += mutexes(n)
		case *ast.TypeAssertExpr:
			if n.Type != nil { // else a type switch, which has clauses
				assert(n.Type)
			}
		case *ast.TypeSwitchStmt:
			for _, clause := range n.Body.List {
				for _, e := range clause.(*ast.CaseClause).List {
					assert(e)
				}
			}
		}
		return true
	})
}

func mutexes(in ast.Node) int {
	found := 0
	ast.Inspect(in, func(n ast.Node) bool {
		if e, ok := n.(*ast.SelectorExpr); ok {
			if name := types.ExprString(e); name == "sync.Mutex" || name == "sync.RWMutex" {
				found++
			}
		}
		return true
	})
	return found
}

// partsAsserted returns how often a store is asked what else it can do.
func (s *source) partsAsserted() int {
	total := 0
	for part := range s.parts {
		total += s.asserted[part]
	}
	return total
}
