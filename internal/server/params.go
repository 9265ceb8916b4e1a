package server

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// parameters are the fields of a handler's input that a request sets. The tag path,
// query or header names a field; ",explode" behind the name of a query says that it may be
// repeated. huma's tags (doc, default, enum, minimum …) describe and bound the value.
type parameters struct {
	list     []parameter
	registry huma.Registry
}

type parameter struct {
	*huma.Param
	field    []int
	fallback string // where the request has none; "" means that it stays unset
}

// parameters returns those of a struct type, and describes them in op.
func (r *router) parameters(op *huma.Operation, t reflect.Type) parameters {
	p := parameters{registry: r.doc.Components.Schemas}
	p.collect(t, nil)
	for _, one := range p.list {
		op.Parameters = append(op.Parameters, one.Param)
	}
	return p
}

func (p *parameters) collect(t reflect.Type, at []int) {
	for i := range t.NumField() {
		f, field := t.Field(i), append(slices.Clone(at), i)
		if f.Anonymous {
			p.collect(f.Type, field)
			continue
		}
		for _, in := range []string{"path", "query", "header"} {
			tag, ok := f.Tag.Lookup(in)
			if !ok {
				continue
			}
			name, options, _ := strings.Cut(tag, ",")
			schema := huma.SchemaFromField(p.registry, f, "")
			one := parameter{field: field, fallback: f.Tag.Get("default"), Param: &huma.Param{
				Name: name, In: in, Description: schema.Description, Required: in == "path" || f.Tag.Get("required") == "true", Schema: schema,
			}}
			if in == "query" {
				explode := options == "explode"
				one.Explode = &explode
			}
			p.list = append(p.list, one)
		}
	}
}

// read sets the fields of into as a request has them. The error is an *invalid.
func (p *parameters) read(req *http.Request, into reflect.Value) error {
	bad, query := &invalid{}, req.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.ContainsFunc(p.list, func(one parameter) bool { return one.In == "query" && one.Name == name }) {
			bad.add("query."+name, "unknown query parameter")
		}
	}
	if len(bad.fields) > 0 {
		return bad
	}
	found := &huma.ValidateResult{}
	for _, one := range p.list {
		path := huma.NewPathBuffer(nil, 0)
		path.Push(one.In)
		path.Push(one.Name)
		values := one.values(req, query)
		if values[0] == "" {
			if one.Required {
				found.Add(path, "", "required "+one.In+" parameter is missing")
			}
			continue
		}
		value, err := setField(into.FieldByIndex(one.field), values)
		if err != nil {
			found.Add(path, values[0], err.Error())
			continue
		}
		huma.Validate(p.registry, one.Schema, path, huma.ModeWriteToServer, value, found)
	}
	for _, err := range found.Errors {
		var d *huma.ErrorDetail
		if errors.As(err, &d) {
			bad.addDetail(d)
		} else {
			bad.add("", "%v", err)
		}
	}
	return bad.or()
}

// values returns what a request has of a parameter, at least one text.
func (p *parameter) values(req *http.Request, query url.Values) []string {
	value := ""
	switch {
	case p.In == "path":
		value = req.PathValue(p.Name)
	case p.In == "header":
		value = req.Header.Get(p.Name)
	case len(query[p.Name]) > 0 && *p.Explode:
		return query[p.Name]
	default:
		value = query.Get(p.Name)
	}
	if value == "" {
		value = p.fallback
	}
	return []string{value}
}

// setField sets a field to what texts say, and returns the value as JSON has it.
func setField(f reflect.Value, texts []string) (any, error) {
	text := texts[0]
	switch {
	case f.Type() == reflect.TypeFor[time.Time]():
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, errors.New("invalid date/time for format " + time.RFC3339Nano)
		}
		f.Set(reflect.ValueOf(t))
		return text, nil
	case f.Kind() == reflect.Slice: // of texts
		list := make([]any, len(texts))
		f.Set(reflect.MakeSlice(f.Type(), len(texts), len(texts)))
		for i, t := range texts {
			f.Index(i).SetString(t)
			list[i] = t
		}
		return list, nil
	case f.Kind() == reflect.String:
		f.SetString(text)
		return text, nil
	case f.CanInt():
		n, err := strconv.ParseInt(text, 10, f.Type().Bits())
		if err != nil {
			return nil, errors.New("invalid integer")
		}
		f.SetInt(n)
		return n, nil
	case f.CanFloat():
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errors.New("invalid float")
		}
		f.SetFloat(n)
		return n, nil
	case f.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, errors.New("invalid boolean")
		}
		f.SetBool(b)
		return b, nil
	}
	panic("server: no parameter can be a " + f.Type().String())
}
