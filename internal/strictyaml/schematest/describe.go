package schematest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/fields"
)

const module = "github.com/agentsched/agentsched/"

// Format is a file format: the struct that it is decoded into, with the
// defaults that hold without a file.
type Format struct {
	Title, About string
	Default      any
}

// Describe compares the JSON schema and the tables of the reference page with
// what the struct says; with update it rewrites them.
//
// A table of the reference follows a line <!-- fields: NAMES --> or <!-- fields
// of PATH: NAMES -->, which names the fields whose rows it has, each with all
// below it. Every field of a struct that has a table must be in one.
func (f Format) Describe(t *testing.T, schema, reference string, update bool) {
	t.Helper()
	d := &describer{t: t, docs: map[string]map[string]string{}, uses: map[reflect.Type]int{}, defs: object{}}
	root := reflect.Indirect(reflect.ValueOf(f.Default))
	d.count(root.Type())
	whole := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", f.Title}, {"description", f.About},
	}
	whole = append(whole, d.structure(root.Type(), root)...)
	if len(d.defs) > 0 {
		slices.SortFunc(d.defs, func(a, b member) int { return strings.Compare(a.name, b.name) })
		whole = append(whole, member{"$defs", d.defs})
	}
	text, err := json.MarshalIndent(whole, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	same(t, schema, string(text)+"\n", update)
	if reference == "" {
		return
	}
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	d.tables = map[string]bool{}
	tables := regexp.MustCompile(`(?m)^<!-- fields(?: of (\S+))?: (.*) -->\n(\|.*\n)*`)
	for _, found := range tables.FindAllStringSubmatch(string(page), -1) {
		d.tables[found[1]] = true
	}
	filled := tables.ReplaceAllStringFunc(string(page), func(table string) string {
		head, _, _ := strings.Cut(table, "\n")
		var b strings.Builder
		b.WriteString(head + "\n| field | type | default | meaning |\n|---|---|---|---|\n")
		found := tables.FindStringSubmatch(table)
		of := d.at(root, found[1])
		shown[found[1]] = true
		all := fields.Of(of.Type())
		for _, name := range strings.Fields(found[2]) {
			i := slices.IndexFunc(all, func(f fields.Field) bool { return f.Name == name })
			if i < 0 {
				t.Errorf("%s: %s has no field %s", reference, of.Type(), name)
				continue
			}
			d.row(&b, name, &all[i], of.FieldByIndex(all[i].Index))
			shown[strings.TrimPrefix(found[1]+"."+name, ".")] = true
		}
		return b.String()
	})
	same(t, reference, filled, update)
	for path := range shown {
		if path != "" && !strings.HasSuffix(path, "[]") {
			continue
		}
		for _, f := range fields.Of(d.at(root, path).Type()) {
			name := strings.TrimPrefix(path+"."+f.Name, ".")
			if !shown[name] && !shown[name+"[]"] {
				t.Errorf("%s has no table with the field %s", reference, name)
			}
		}
	}
}

func same(t *testing.T, path, want string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the struct says; go test -update writes it", path)
	}
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		value, err := marshal(m.value)
		if err != nil {
			return nil, err
		}
		b = append(strconv.AppendQuote(b, m.name), ':')
		b = append(b, value...)
	}
	return append(b, '}'), nil
}

// marshal does not escape what only HTML needs.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return []byte(b.String()), err
}

type describer struct {
	t    *testing.T
	docs map[string]map[string]string // by package, then Type.Field
	uses map[reflect.Type]int         // of structs
	defs object
	// tables are the paths of structs that have a table of their own.
	tables map[string]bool
}

// count counts in how many places each struct stands.
func (d *describer) count(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		d.count(t.Elem())
	case reflect.Struct:
		if d.uses[t]++; d.uses[t] == 1 && !single(t) {
			for _, f := range fields.Of(t) {
				d.count(f.Type)
			}
		}
	}
}

// single reports whether the type has a form of its own.
func single(t reflect.Type) bool {
	_, text := reflect.New(t).Interface().(interface{ UnmarshalText([]byte) error })
	return text || t.Implements(reflect.TypeFor[fields.Custom]())
}

// schema describes a value of a type with a tag; def is its default, if there is one.
func (d *describer) schema(t reflect.Type, tag reflect.StructTag, def reflect.Value) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
		if def.IsValid() && !def.IsNil() {
			def = def.Elem()
		} else {
			def = reflect.Value{}
		}
	}
	if t.Implements(reflect.TypeFor[fields.Custom]()) {
		return d.members(t, reflect.Zero(t).Interface().(fields.Custom).JSONSchema())
	}
	if single(t) {
		text := object{{"type", "string"}, {"pattern", tag.Get("text")}}
		if tag.Get("number") != "" {
			return object{{"oneOf", []object{{{"type", "integer"}, {"minimum", 0}}, text}}}
		}
		return text
	}
	switch t.Kind() {
	case reflect.Struct:
		var o object
		if d.uses[t] > 1 {
			name := strings.ToLower(t.Name())
			if !slices.ContainsFunc(d.defs, func(m member) bool { return m.name == name }) {
				at := len(d.defs)
				d.defs = append(d.defs, member{name, nil})
				d.defs[at].value = d.structure(t, reflect.Value{})
			}
			o = object{{"$ref", "#/$defs/" + name}}
		} else {
			o = d.structure(t, def)
		}
		if short := tag.Get("short"); short != "" {
			for _, f := range fields.Of(t) {
				if f.Name == short {
					return object{{"oneOf", []object{d.schema(f.Type, f.Tag, reflect.Value{}), o}}}
				}
			}
		}
		return o
	case reflect.Slice:
		each := d.schema(t.Elem(), tag, reflect.Value{})
		list := object{{"type", "array"}}
		if n := tag.Get("items"); n != "" {
			list = append(list, member{"minItems", json.Number(n)})
		}
		list = append(list, member{"items", each})
		if tag.Get("single") != "" {
			return object{{"oneOf", []object{list, each}}}
		}
		return list
	case reflect.Map:
		o := object{{"type", "object"}}
		if pattern := d.tagOf(t.Key(), reflect.StructTag(tag.Get("keys"))); pattern.Get("match") != "" || pattern.Get("words") != "" {
			o = append(o, member{"propertyNames", words(pattern)})
		}
		return append(o, member{"additionalProperties", d.schema(t.Elem(), d.tagOf(t.Elem(), tag), reflect.Value{})})
	case reflect.String:
		return append(object{{"type", "string"}}, words(tag)...)
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int64:
		return append(object{{"type", "integer"}}, bounds(tag)...)
	case reflect.Float64:
		return append(object{{"type", "number"}}, bounds(tag)...)
	}
	d.t.Fatalf("no JSON schema for %s", t)
	return nil
}

// members reads the JSON schema that a type gives.
func (d *describer) members(t reflect.Type, text string) (o object) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.Token()
	for dec.More() {
		name, _ := dec.Token()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			d.t.Fatalf("JSON schema of %s: %v", t, err)
		}
		o = append(o, member{name.(string), value})
	}
	return o
}

// tagOf returns a tag followed by that of the type.
func (d *describer) tagOf(t reflect.Type, tag reflect.StructTag) reflect.StructTag {
	if own, ok := reflect.Zero(t).Interface().(fields.Tagged); ok {
		return tag + " " + own.FieldTag()
	}
	return tag
}

func words(tag reflect.StructTag) object {
	var o object
	if list := strings.Fields(tag.Get("words")); len(list) > 0 {
		return object{{"enum", list}}
	}
	if pattern := tag.Get("match"); pattern != "" {
		o = object{{"pattern", pattern}}
	} else {
		o = object{{"minLength", 1}}
	}
	if most := tag.Get("max"); most != "" {
		o = append(o, member{"maxLength", json.Number(most)})
	}
	return o
}

func bounds(tag reflect.StructTag) object {
	var o object
	_, zero := tag.Lookup("zero")
	if low := tag.Get("min"); low != "" && zero {
		o = append(o, member{"minimum", 0})
	} else if low != "" {
		o = append(o, member{"minimum", json.Number(low)})
	}
	if above := tag.Get("above"); above != "" && zero {
		o = append(o, member{"minimum", 0})
	} else if above != "" {
		o = append(o, member{"exclusiveMinimum", json.Number(above)})
	}
	if high := tag.Get("max"); high != "" {
		o = append(o, member{"maximum", json.Number(high)})
	}
	return o
}

func (d *describer) structure(t reflect.Type, def reflect.Value) object {
	var required []string
	properties := object{}
	for _, f := range fields.Of(t) {
		about := d.doc(&f)
		var inner reflect.Value
		if def.IsValid() {
			inner = def.FieldByIndex(f.Index)
		}
		one := object{{"description", about}}
		if f.Reserved() {
			properties = append(properties, member{f.Name, append(one, member{"not", object{}})})
			continue
		}
		if f.Tag.Get("need") != "" {
			required = append(required, f.Name)
		} else if text := d.defaultOf(&f, inner); text != "" {
			one[0].value = strings.TrimSuffix(about, ".") + ". Default: " + strings.ReplaceAll(text, "`", "") + "."
		}
		one = append(one, d.schema(f.Type, f.Tag, inner)...)
		if list := strings.Fields(f.Tag.Get("offer")); len(list) > 0 {
			one = append(one, member{"examples", list})
		}
		properties = append(properties, member{f.Name, one})
	}
	o := object{{"type", "object"}, {"additionalProperties", false}}
	if required != nil {
		o = append(o, member{"required", required})
	}
	if own, ok := reflect.Zero(t).Interface().(fields.Ruled); ok {
		o = append(o, d.members(t, own.JSONSchemaRules())...)
	}
	return append(o, member{"properties", properties})
}

// defaultOf describes what holds where a file does not give the field; "" if
// there is nothing to say.
func (d *describer) defaultOf(f *fields.Field, v reflect.Value) string {
	if text, ok := f.Tag.Lookup("otherwise"); ok {
		return text
	}
	for v.IsValid() && v.Kind() == reflect.Pointer {
		if v = v.Elem(); !v.IsValid() {
			return ""
		}
	}
	if !v.IsValid() || f.Tag.Get("need") != "" {
		return ""
	}
	_, zero := f.Tag.Lookup("zero")
	limited := f.Tag.Get("min")+f.Tag.Get("above") != "" && !zero
	if f.Optional && v.IsZero() && limited && f.Tag.Get("min") != "0" && f.Tag.Get("min") != "0s" || v.Type().Implements(reflect.TypeFor[fields.Custom]()) {
		return "none"
	}
	if own, ok := v.Interface().(fmt.Stringer); ok && own.String() != "" {
		text := own.String()
		for _, zero := range []string{"0s", "0m"} { // 5m0s is 5m
			if short := strings.TrimSuffix(text, zero); short != "" && strings.ContainsAny(short[len(short)-1:], "mh") {
				text = short
			}
		}
		return "`" + text + "`"
	}
	switch v.Kind() {
	case reflect.Struct:
		return ""
	case reflect.Map:
		if v.Len() > 0 {
			return ""
		}
		return "none"
	case reflect.Slice:
		if v.Len() == 0 {
			return "none"
		}
		return "`" + strings.ReplaceAll(fmt.Sprint(v.Interface()), " ", ", ") + "`"
	case reflect.String:
		if v.Len() == 0 {
			return "none"
		}
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

// doc returns the first paragraph of the field's comment.
func (d *describer) doc(f *fields.Field) string {
	pkg := f.Owner.PkgPath()
	if d.docs[pkg] == nil {
		d.docs[pkg] = d.read(pkg)
	}
	name, _, _ := strings.Cut(f.Owner.Name(), "[")
	text := d.docs[pkg][name+"."+f.GoName]
	if text == "" {
		d.t.Errorf("%s.%s.%s, the field %s of a file, has no comment that says what it means", pkg, name, f.GoName, f.Name)
	}
	return text
}

// read returns the comments of all fields of the package's structs.
func (d *describer) read(pkg string) map[string]string {
	dir := filepath.Join(root(d.t), strings.TrimPrefix(pkg, module))
	docs, set := map[string]string{}, token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		d.t.Fatalf("no source of %s in %s: %v", pkg, dir, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			d.t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			of, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range of.Fields.List {
				text := f.Doc.Text()
				if text == "" {
					text = f.Comment.Text()
				}
				text, _, _ = strings.Cut(text, "\n\n")
				for _, name := range f.Names {
					docs[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(text), " ")
				}
			}
			return true
		})
	}
	return docs
}

// root returns the folder of go.mod.
func root(t *testing.T) string {
	dir, err := filepath.Abs(".")
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	t.Fatal("there is no go.mod above the working directory")
	return ""
}

// at returns the struct at path, such as "jobs[]", with its defaults.
func (d *describer) at(root reflect.Value, path string) reflect.Value {
	v := root
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' }) {
		name := strings.TrimSuffix(step, "[]")
		for _, f := range fields.Of(v.Type()) {
			if f.Name == name {
				v = v.FieldByIndex(f.Index)
				break
			}
		}
		if name != step {
			v = reflect.New(v.Type().Elem()).Elem()
			defaults(v)
		}
	}
	return v
}

func defaults(v reflect.Value) {
	if own, ok := v.Addr().Interface().(fields.Defaulter); ok {
		own.SetDefaults()
	}
}

func (d *describer) row(b *strings.Builder, path string, f *fields.Field, v reflect.Value) {
	fallback := "required"
	if f.Tag.Get("need") == "" {
		fallback = d.defaultOf(f, v)
	}
	meaning := strings.ReplaceAll(d.doc(f), "|", "\\|")
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", path, typeName(f.Type, f.Tag), fallback, strings.TrimSuffix(meaning, "."))
	if f.Tag.Get("rows") == "below" || d.tables[path+"[]"] {
		return
	}
	t := f.Type
	for {
		switch t.Kind() {
		case reflect.Pointer:
		case reflect.Slice:
			path += "[]"
		case reflect.Map:
			path += ".*"
		default:
			if t.Kind() == reflect.Struct && !single(t) {
				if !v.IsValid() || v.Type() != t {
					v = reflect.New(t).Elem()
					defaults(v)
				}
				for _, inner := range fields.Of(t) {
					d.row(b, path+"."+inner.Name, &inner, v.FieldByIndex(inner.Index))
				}
			}
			return
		}
		t = t.Elem()
	}
}

// typeName says what a file writes.
func typeName(t reflect.Type, tag reflect.StructTag) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, own := tag.Lookup("type")
	switch {
	case t.Kind() == reflect.Slice && !single(t):
		of := typeName(t.Elem(), tag)
		list := "list of " + of + "s"
		switch {
		case strings.HasPrefix(of, "`"):
			list = "list of " + of
		case strings.HasPrefix(of, "list") || strings.HasSuffix(of, "mapping"):
			list = "list"
		}
		if tag.Get("single") != "" {
			return of + ", or " + list
		}
		return list
	case own:
		return name
	case t.Kind() == reflect.Map, t.Kind() == reflect.Struct && tag.Get("short") == "":
		return "mapping"
	case t.Kind() == reflect.Struct:
		return tag.Get("short") + ", or mapping"
	case tag.Get("words") != "":
		return "`" + strings.Join(strings.Fields(tag.Get("words")), "`, `") + "`"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "`true` or `false`"
	case t.Kind() == reflect.Float64:
		return "number"
	}
	return "whole number"
}
