package server

import (
	"cmp"
	_ "embed" // comments.txt
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// enumerations are the types whose values are known.
func enumerations() map[reflect.Type][]any {
	return map[reflect.Type][]any{
		reflect.TypeFor[job.EntryState]():      anyOf(job.EntryStates()),
		reflect.TypeFor[job.RunState]():        anyOf(job.RunStates()),
		reflect.TypeFor[job.ExitKind]():        {job.ExitSucceeded, job.ExitFailed, job.ExitCancelled},
		reflect.TypeFor[job.ErrorClass]():      anyOf(job.ErrorClasses()),
		reflect.TypeFor[job.Type]():            {job.LLM, job.Tool, job.WorkerTask, job.External, job.PluginEvent, job.Maintenance},
		reflect.TypeFor[job.Capability]():      anyOf(job.Capabilities()),
		reflect.TypeFor[job.AskFor]():          anyOf(job.AskFors()),
		reflect.TypeFor[job.AskAnswer]():       anyOf(job.AskAnswers()),
		reflect.TypeFor[job.Isolation]():       {job.Worktree, job.Direct, job.Copy, job.NoWorkspace},
		reflect.TypeFor[job.Class]():           anyOf(job.Classes()),
		reflect.TypeFor[job.DuplicatePolicy](): anyOf(job.DuplicatePolicies()),
		reflect.TypeFor[job.OversightMode]():   anyOf(job.OversightModes()),
		reflect.TypeFor[job.Hold]():            {job.HeldForNeeds, job.HeldForParts, job.HeldForApproval, job.HeldForTeam, job.HeldForWords, job.HeldByPerson},
		reflect.TypeFor[job.Strategy]():        anyOf(job.Strategies()),
		reflect.TypeFor[job.RestartType]():     anyOf(job.RestartTypes()),
		reflect.TypeFor[job.Kept]():            {job.KeptFresh, job.KeptBefore, job.KeptRefused},
		reflect.TypeFor[api.RunGrantKind]():    anyOf(api.RunGrantKinds()),
		reflect.TypeFor[api.MessageState]():    anyOf(api.MessageStates()),
		reflect.TypeFor[api.QuestionState]():   anyOf(api.QuestionStates()),
		reflect.TypeFor[api.RunGrantScope]():   anyOf(api.RunGrantScopes()),
		reflect.TypeFor[api.SubjectKind]():     {api.WorkerSubject, api.AgentSubject, api.TenantSubject},
	}
}

func anyOf[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// requiredFields are the types that requests hold, and the fields that these must
// have: all others have a meaning where they are left out, whatever an answer
// always has.
func requiredFields() map[reflect.Type][]string {
	return map[reflect.Type][]string{
		reflect.TypeFor[api.Submission]():    {"jobs"},
		reflect.TypeFor[api.JobFile]():       {"text"},
		reflect.TypeFor[api.Resume]():        {"scope"},
		reflect.TypeFor[api.Pause]():         {"scope"},
		reflect.TypeFor[api.Upgrade]():       {"mode"},
		reflect.TypeFor[api.Requeue]():       {"letters"},
		reflect.TypeFor[api.RequeueLetter](): {"id"},
		reflect.TypeFor[api.Drop]():          {"ids"},
		reflect.TypeFor[api.CancelKey]():     {"key"},
		reflect.TypeFor[api.Checkpoint]():    nil,
		reflect.TypeFor[api.RestartCores]():  nil,
		reflect.TypeFor[api.UILink]():        nil,
		reflect.TypeFor[api.Answer]():        {"approved"},
		reflect.TypeFor[api.Rewind]():        {"stage", "from"},
		reflect.TypeFor[api.Replay]():        nil,
		reflect.TypeFor[api.Judgement]():     {"by"},
		reflect.TypeFor[api.Grant]():         {"tenant"},
		reflect.TypeFor[api.AllowRun]():      {"entry"},
		reflect.TypeFor[api.RevokeRun]():     {"entry"},
		reflect.TypeFor[api.TopUp]():         {"tenant", "credits"},
		reflect.TypeFor[api.DropBalance]():   {"tenant"},
		reflect.TypeFor[job.Spec]():          {"id", "type"},
		reflect.TypeFor[job.Workspace]():     nil,
		reflect.TypeFor[job.Context]():       nil,
		reflect.TypeFor[job.Limits]():        nil,
		reflect.TypeFor[job.ForEach]():       {"items"},
		reflect.TypeFor[job.Loop]():          nil,
		reflect.TypeFor[job.Oversight]():     {"mode"},
		reflect.TypeFor[job.Team]():          {"id"},
		reflect.TypeFor[job.Member]():        nil,
	}
}

// comments.txt holds the doc comments of packages api and job, a line for each type
// and field, in the order of their names. A test writes it.
//
//go:embed comments.txt
var commentLines string

// comments are the descriptions of types and of their fields, by "api.Job" and
// "api.Job.ID".
func comments() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(commentLines) {
		name, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		all[name] = text
	}
	return all
}

// declaring returns the type that declares a field of t, which may be embedded.
func declaring(t reflect.Type, f *reflect.StructField) reflect.Type {
	for _, i := range f.Index[:len(f.Index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

// refine says of a type's schema what huma cannot know. A struct's map or list that
// is nil is written as null; a request's field may be left out.
func refine(schema *huma.Schema, t reflect.Type, said map[string]string) {
	if t == nil {
		return
	}
	schema.Description = said[t.String()]
	if t.Kind() != reflect.Struct {
		return
	}
	values := enumerations()
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := schema.Properties[name]
		if property == nil {
			continue
		}
		property.Description = said[declaring(t, &f).String()+"."+f.Name]
		omits := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		refineField(property, f.Type, omits, values)
	}
	if required, ok := requiredFields()[t]; ok {
		schema.Required = required
	}
	schema.PrecomputeMessages()
}

func refineField(property *huma.Schema, t reflect.Type, omits bool, values map[reflect.Type][]any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		property.Description = cmp.Or(property.Description, "any JSON")
	case t == reflect.TypeFor[job.Duration]():
		property.Description = cmp.Or(property.Description, "a length of time as Go writes it")
		property.Examples = []any{"1h30m0s"}
	case t.Kind() == reflect.Map:
		property.Nullable = !omits
	case t.Kind() == reflect.Slice && values[t.Elem()] != nil:
		property.Items.Enum = values[t.Elem()]
	case values[t] != nil && !slices.Contains([]string{"", "null"}, property.Type):
		property.Enum = slices.Clone(values[t])
		if !omits {
			property.Enum = append(property.Enum, "") // where nothing is said
		}
	}
}
