package server

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
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
		reflect.TypeFor[job.Isolation]():       {job.Worktree, job.Direct, job.Copy, job.NoWorkspace},
		reflect.TypeFor[job.Class]():           anyOf(job.Classes()),
		reflect.TypeFor[job.DuplicatePolicy](): anyOf(job.DuplicatePolicies()),
		reflect.TypeFor[job.OversightMode]():   anyOf(job.OversightModes()),
		reflect.TypeFor[job.Hold]():            {job.HeldForNeeds, job.HeldForParts, job.HeldForApproval, job.HeldForTeam},
		reflect.TypeFor[job.Strategy]():        anyOf(job.Strategies()),
		reflect.TypeFor[job.RestartType]():     anyOf(job.RestartTypes()),
		reflect.TypeFor[job.Kept]():            {job.KeptFresh, job.KeptBefore, job.KeptRefused},
		reflect.TypeFor[eval.Kind]():           {eval.Worker, eval.Agent, eval.Tenant},
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
		reflect.TypeFor[client.Submission]():    {"jobs"},
		reflect.TypeFor[client.JobFile]():       {"text"},
		reflect.TypeFor[client.Resume]():        {"scope"},
		reflect.TypeFor[client.Pause]():         {"scope"},
		reflect.TypeFor[client.Upgrade]():       {"mode"},
		reflect.TypeFor[client.Requeue]():       {"letters"},
		reflect.TypeFor[client.RequeueLetter](): {"id"},
		reflect.TypeFor[client.Drop]():          {"ids"},
		reflect.TypeFor[client.CancelKey]():     {"key"},
		reflect.TypeFor[client.Checkpoint]():    nil,
		reflect.TypeFor[client.RestartCores]():  nil,
		reflect.TypeFor[client.UILink]():        nil,
		reflect.TypeFor[scheduler.Answer]():     {"approved"},
		reflect.TypeFor[scheduler.Rewind]():     {"stage", "from"},
		reflect.TypeFor[eval.Given]():           {"by"},
		reflect.TypeFor[queue.Grant]():          {"tenant"},
		reflect.TypeFor[job.Spec]():             {"id", "type"},
		reflect.TypeFor[job.Workspace]():        nil,
		reflect.TypeFor[job.Context]():          nil,
		reflect.TypeFor[job.Limits]():           nil,
		reflect.TypeFor[job.ForEach]():          {"items"},
		reflect.TypeFor[job.Loop]():             nil,
		reflect.TypeFor[job.Oversight]():        {"mode"},
		reflect.TypeFor[job.Team]():             {"id"},
		reflect.TypeFor[job.Member]():           nil,
	}
}

// refine says of a type's schema what huma cannot know. A struct's map or list that
// is nil is written as null; a request's field may be left out.
func refine(schema *huma.Schema, t reflect.Type) {
	if t == nil || t.Kind() != reflect.Struct {
		return
	}
	values := enumerations()
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := schema.Properties[name]
		if property == nil {
			continue
		}
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
		property.Description = "any JSON"
	case t == reflect.TypeFor[job.Duration]():
		property.Description = "a length of time as Go writes it"
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
