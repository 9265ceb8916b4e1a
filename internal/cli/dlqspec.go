package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/agentsched/agentsched/internal/fields"
	"github.com/agentsched/agentsched/internal/strictyaml"
	"github.com/agentsched/agentsched/job"
)

// jobFile is a job file of one job, its fields in the order of docs/job-file.md.
type jobFile struct {
	tenant string
	job    yaml.MapSlice
}

// newJobFile returns the job file that says what s does, but for points in time
// that have passed.
func newJobFile(s *job.Spec, now time.Time) (*jobFile, error) {
	f := &jobFile{tenant: string(s.Tenant)}
	add := func(name string, value any) {
		if v := reflect.ValueOf(value); v.IsValid() && !v.IsZero() {
			f.job = append(f.job, yaml.MapItem{Key: name, Value: value})
		}
	}
	add("id", string(s.Name))
	add("type", string(s.Type))
	add("worker", string(s.Worker))
	add("model", s.Model)
	var fallback []string
	for _, c := range s.Fallback {
		text := string(c.Worker)
		if c.Model != "" {
			text += ":" + c.Model
		}
		fallback = append(fallback, text)
	}
	add("fallback", fallback)
	if s.Workspace.Isolation != job.NoWorkspace {
		w := s.Workspace
		if w.Parcel != (job.Parcel{}) {
			w.Path, w.Parcel = parcelPath(&w.Parcel), job.Parcel{} // which no job file can say
		}
		add("workspace", mapping(w))
	}
	add("node", mapping(s.Node))
	add("instructions", s.Instructions)
	add("system_prompt", s.SystemPrompt)
	if s.Type != job.LLM || len(s.Capabilities) > 0 {
		add("capabilities", append([]job.Capability{}, s.Capabilities...)) // also if there are none
	}
	add("allow_commands", s.AllowCommands)
	add("env", s.Env)
	add("sandbox", mapping(s.Sandbox))
	add("network", s.Network)
	add("git", listing(s.Git))
	add("ask", mapping(s.Ask))
	add("secrets", s.Secrets)
	add("priority", s.Priority)
	add("class", string(s.Class))
	add("agent", string(s.Agent))
	add("domain", s.Domain)
	add("expect", mapping(s.Expect))
	add("key", s.Key)
	add("on_duplicate", string(s.OnDuplicate))
	add("turn", s.Turn)
	for _, at := range []struct {
		name string
		time *time.Time
	}{{"runnable_at", s.RunnableAt}, {"deadline", s.Deadline}} {
		if at.time != nil && at.time.After(now) {
			add(at.name, at.time.UTC().Format(time.RFC3339Nano))
		}
	}
	add("limits", mapping(s.Limits))
	if len(s.Output) > 0 {
		var schema yaml.MapSlice
		if err := yaml.UnmarshalWithOptions(s.Output, &schema, yaml.UseOrderedMap()); err != nil {
			return nil, fmt.Errorf("write the output schema of job %s as YAML: %w", s.Name, err)
		}
		add("output", schema)
	}
	add("verify", s.Verify)
	if len(s.Payload) > 0 {
		var event any
		if err := yaml.UnmarshalWithOptions(s.Payload, &event, yaml.UseOrderedMap()); err != nil {
			return nil, fmt.Errorf("write the payload of job %s as YAML: %w", s.Name, err)
		}
		add("payload", event)
	}
	add("trace", s.Trace)
	add("context", mapping(s.Context))
	return f, nil
}

// parcelPath is the path that stands for a parcel in a job file.
func parcelPath(p *job.Parcel) string { return cmp.Or(p.Folder, "/parcels/"+p.Digest) }

// mapping returns the fields of v, a struct, that have a value; nil if none has.
func mapping(v any) (out yaml.MapSlice) {
	of := reflect.ValueOf(v)
	for _, f := range fields.Of(of.Type()) {
		switch value := of.FieldByIndex(f.Index); {
		case value.IsZero():
		case value.Kind() == reflect.Struct:
			out = append(out, yaml.MapItem{Key: f.Name, Value: mapping(value.Interface())})
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			out = append(out, yaml.MapItem{Key: f.Name, Value: listing(value.Interface())})
		default:
			out = append(out, yaml.MapItem{Key: f.Name, Value: value.Interface()})
		}
	}
	return out
}

// listing returns the mappings of a list of structs; nil if it is empty.
func listing(v any) (out []any) {
	list := reflect.ValueOf(v)
	for i := range list.Len() {
		out = append(out, mapping(list.Index(i).Interface()))
	}
	return out
}

func (f *jobFile) document() yaml.MapSlice {
	return yaml.MapSlice{{Key: "tenant", Value: f.tenant}, {Key: "jobs", Value: []any{f.job}}}
}

// bytes returns the file as YAML that a person likes to edit, or, if that would
// not be read as it is meant, as JSON, which is YAML too.
func (f *jobFile) bytes() ([]byte, error) {
	plain, err := plainJSON(f.document())
	if err != nil {
		return nil, err
	}
	for _, literal := range []bool{true, false} {
		text, err := yaml.MarshalWithOptions(f.document(), yaml.UseLiteralStyleIfMultiline(literal), yaml.IndentSequence(true))
		if err == nil && means(text, plain) {
			return text, nil
		}
	}
	if !means(plain, plain) {
		return nil, errors.New("write the job as YAML: it holds what no job file can")
	}
	return plain, nil
}

// means reports whether text is read as the JSON want.
func means(text, want []byte) bool {
	doc, err := strictyaml.Parse("", text)
	if err != nil || doc.Err() != nil {
		return false
	}
	var a, b any
	if json.Unmarshal(doc.Root().JSON(), &a) != nil || json.Unmarshal(want, &b) != nil {
		return false
	}
	return reflect.DeepEqual(a, b)
}

// plainJSON writes v, with mappings in their order. DEL, which JSON allows in a
// text and a file of ours does not, is escaped.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := writePlain(&b, v)
	return bytes.ReplaceAll(b.Bytes(), []byte{0x7f}, []byte(`\u007f`)), err
}

func writePlain(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case yaml.MapSlice:
		b.WriteByte('{')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(b, "%s: ", quoted(fmt.Sprint(item.Key)))
			if err := writePlain(b, item.Value); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case []any:
		b.WriteByte('[')
		for i, one := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := writePlain(b, one); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case string:
		b.WriteString(quoted(v))
		return nil
	}
	text, err := json.Marshal(v)
	b.Write(text)
	return err
}

// quoted is a text as JSON without the escapes that only HTML needs.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(s) // of a string: it cannot fail
	return strings.TrimSuffix(b.String(), "\n")
}

// set changes one field: "name=value" or "name.name=value". A value that begins
// with [, { or a quote is YAML, so is a number or a boolean, any other is a text
// as it stands; an empty one removes the field.
func (f *jobFile) set(assignment string) error {
	path, text, ok := strings.Cut(assignment, "=")
	if !ok || path == "" {
		return fmt.Errorf("--set %q: want FIELD=VALUE such as limits.timeout=1h", assignment)
	}
	value, err := fieldValue(text)
	if err != nil {
		return fmt.Errorf("--set %s: %w", path, err)
	}
	steps := strings.Split(path, ".")
	if path == "tenant" {
		f.tenant = text
		return nil
	}
	changed, err := setField(f.job, steps, value)
	if err != nil {
		return fmt.Errorf("--set %s: %w", path, err)
	}
	f.job = changed
	return nil
}

func fieldValue(text string) (any, error) {
	_, err := strconv.ParseFloat(text, 64)
	switch {
	case text == "":
		return nil, nil
	case err == nil, text == "true", text == "false", strings.ContainsAny(text[:1], "[{\"'"):
	default:
		return text, nil
	}
	var v any
	if err := yaml.UnmarshalWithOptions([]byte(text), &v, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("%q is not YAML: %s", text, firstLine(err.Error()))
	}
	return v, nil
}

// setField returns m with the value at the path; nil removes it.
func setField(m yaml.MapSlice, steps []string, value any) (yaml.MapSlice, error) {
	m = slices.Clone(m)
	at := slices.IndexFunc(m, func(i yaml.MapItem) bool { return i.Key == steps[0] })
	if len(steps) > 1 {
		var inner yaml.MapSlice
		if at >= 0 {
			var ok bool
			if inner, ok = m[at].Value.(yaml.MapSlice); !ok {
				return nil, fmt.Errorf("%s holds no fields", steps[0])
			}
		}
		inner, err := setField(inner, steps[1:], value)
		if err != nil {
			return nil, err
		}
		value = nil
		if len(inner) > 0 {
			value = inner
		}
	}
	switch {
	case value == nil && at >= 0:
		return slices.Delete(m, at, at+1), nil
	case value == nil:
		return m, nil
	case at >= 0:
		m[at].Value = value
		return m, nil
	}
	return append(m, yaml.MapItem{Key: steps[0], Value: value}), nil
}
