package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	s, err := read(fstest.MapFS{
		"queue/store.go":       file("// Package queue\n// has a comment.\npackage queue\n\ntype Ledger interface{}\n\ntype Begin struct{} // an op\n"),
		"queue/more.go":        file("package queue\n\n/*\nlong\n*/\nfunc f(a any) bool { _, ok := a.(Ledger); return ok }\n"),
		"house/s_a.go":         file("package house\n\nimport \"sync\"\n\ntype S struct {\n\tmu sync.Mutex\n\trw sync.RWMutex\n}\n\nfunc (*S) a() {}\nfunc (s S) b() {}\nvar m sync.Mutex\n"),
		"house/s_b.go":         file("package house\n\nfunc (*S) a() {}\nfunc (*L[T]) c() {}\nconst raw = `one\n\ntwo`\n"),
		"house/use.go":         file("package house\n\nfunc use(a any) {\n\ta.(queue.Ledger)\n\ta.(queue.Begin)\n\tswitch a.(type) {\n\tcase int, queue.Ledger:\n\t}\n}\n"),
		"house/a_test.go":      file("package house\n\nfunc (*S) d() {}\n"),
		"house/testdata/x.go":  file("no Go"),
		"queue/queuetest/q.go": file("package queuetest\n\nvar a any.(queue.Ledger)\n"),
		".cache/a/b.go":        file("package b\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.code) != 2 || s.code["queue"] != 5 || s.comments["queue"] != 5 || s.code["house"] != 9+6+8 || s.comments["house"] != 0 {
		t.Errorf("lines of code %v, of comments %v", s.code, s.comments)
	}
	if got, want := s.largest(), []string{"house.S", "house.L"}; !slices.Equal(got, want) || len(s.methods["house.S"]) != 2 {
		t.Errorf("types %v with methods %v; want %v", got, s.methods, want)
	}
	if s.mutexes["house"] != 3 || s.mutexes["house.S"] != 2 || s.mutexes["queue"] != 0 {
		t.Errorf("mutexes %v", s.mutexes)
	}
	if got := s.partsAsserted(); got != 3 {
		t.Errorf("%d assertions on parts of a store, want 3: %v of %v", got, s.asserted, s.parts)
	}
}
