package sched

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
)

// decode reads the parameters of a call, an object, into a struct, whose fields are
// the parameters. A time may be RFC 3339 or seconds since 1970, a list of states one
// word. A parameter that the call does not have is InvalidParams, a value that a
// parameter cannot have InvalidPayload, of a state InvalidStateFilter.
func decode(params json.RawMessage, into any) error {
	if len(bytes.TrimSpace(params)) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(params, &given); err != nil || given == nil {
		return refuse(InvalidParams, "params are not right, want an object such as {\"sched_id\":\"…\"}")
	}
	fields := map[string]reflect.Value{}
	fieldsOf(reflect.ValueOf(into).Elem(), fields)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, known := fields[name]
		if !known {
			return refuse(InvalidParams, "%q is no parameter of this call, want some of %s", name, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		}
		if err := decodeField(given[name], field.Addr().Interface()); err != nil {
			code := InvalidPayload
			if _, states := field.Interface().([]job.EntryState); states {
				code = InvalidStateFilter
			}
			return refuse(code, "%s%v", name, err)
		}
	}
	return nil
}

// fieldsOf adds the fields of a struct by their names in JSON, those of embedded
// structs too.
func fieldsOf(v reflect.Value, fields map[string]reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fieldsOf(v.Field(i), fields)
		case name != "-":
			fields[name] = v.Field(i)
		}
	}
}

// decodeField reads a parameter. The error goes on where the parameter's name ends.
func decodeField(text json.RawMessage, into any) error {
	if string(text) == "null" {
		return nil
	}
	switch into := into.(type) {
	case **time.Time:
		at, err := parseTime(text)
		*into = at
		return err
	case *[]job.EntryState:
		if text[0] == '"' {
			text = slices.Concat([]byte{'['}, text, []byte{']'})
		}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := ""
		if wrong.Field != "" {
			field = "." + wrong.Field
		}
		return fmt.Errorf("%s: a JSON %s is not allowed, want %s", field, wrong.Value, wantOf(wrong.Type))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf(": %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// wantOf says what values a type has.
func wantOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[job.Duration]():
		return "a duration such as \"90s\""
	case reflect.TypeFor[[]job.EntryState]():
		return "a state or a list of states"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// maxEpoch is the last second that a store can keep, in the year 2262.
const maxEpoch = math.MaxInt64 / int64(time.Second)

// parseTime reads RFC 3339, or seconds since 1970 to the microsecond, of which 0 is
// no time: nil.
func parseTime(text json.RawMessage) (*time.Time, error) {
	const want = `want a time such as "2026-03-01T12:00:00Z" or seconds since 1970`
	if text[0] == '"' {
		var at time.Time
		if err := json.Unmarshal(text, &at); err != nil {
			return nil, fmt.Errorf(": %s is not a time, %s", text, want)
		}
		return &at, nil
	}
	seconds, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf(": %.40s is not a time, %s", text, want)
	case seconds < 0 || seconds > float64(maxEpoch):
		return nil, fmt.Errorf(": %s is out of range, want 0 to %d seconds since 1970", text, maxEpoch)
	case seconds == 0:
		return nil, nil
	}
	whole, part := math.Modf(seconds)
	at := time.Unix(int64(whole), int64(math.Round(part*1e6))*1000).UTC()
	return &at, nil
}
