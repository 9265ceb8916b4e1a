package server

import (
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/eval"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/workflow/pipeline"
)

// TestConversions: nothing is lost or mixed up on the way to the API's types: each
// field of a value that has all fields set, each to something else, is where it was.
func TestConversions(t *testing.T) {
	same(t, JobOf)
	same(t, AccountOf)
	same(t, GrantOf)
	same(t, IsolationOf)
	same(t, circuitOf)
	same(t, shareOf)
	same(t, censusOf)
	same(t, EvaluationOf)
	same(t, ReputationOf)
	same(t, EvaluationsOf)
	same(t, statusOf)
	same(t, func(e *queue.StoredEvent) any { return EventsOf([]queue.StoredEvent{*e})[0] })
	same(t, func(e *pipeline.Event) any { return PipelineEventsOf([]pipeline.Event{*e})[0] })
	same(t, func(p *scheduler.Pipeline) any { return PipelinesOf([]scheduler.Pipeline{*p})[0] })
	same(t, func(g *queue.Grant) any { return grantOf(new(GrantOf(g))) })
	same(t, func(s *eval.Similar) any { return SimilarOf(&s.Reputation, []eval.Similar{*s}).Similar[0] })
	same(t, func(i *isolation.Isolation) any { return IsolationsOf([]isolation.Isolation{*i})[0] })
	same(t, func(c *ipc.Circuit) any { return CircuitsOf([]ipc.Circuit{*c})[0] })
	same(t, func(s *policy.Share) any { return shareOf(s) })
}

// same checks that a value and what it is converted to are the same in JSON.
func same[From, To any](t *testing.T, convert func(*From) To) {
	t.Helper()
	from, n := new(From), 0
	Fill(reflect.ValueOf(from).Elem(), func() int { n++; return n })
	want, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(convert(from))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%T becomes\n%s, want\n%s", from, got, want)
	}
}

// Fill sets a value and all that it holds, but for what holds itself. Two values of
// one type are alike if next, which numbers them, returns the same.
func Fill(v reflect.Value, next func() int) { fill(v, next, map[reflect.Type]bool{}) }

func fill(v reflect.Value, next func() int, within map[reflect.Type]bool) {
	switch t := v.Type(); {
	case t == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2000, 1, 1, 0, 0, next(), 0, time.UTC)))
	case t == reflect.TypeFor[json.RawMessage]():
		v.Set(reflect.ValueOf(json.RawMessage(`{"any":"json` + suffix(next()) + `"}`)))
	case (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && within[t.Elem()]:
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		fill(v.Elem(), next, within)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
		fill(v.Index(0), next, within)
	case v.Kind() == reflect.Map:
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		fill(key, next, within)
		fill(value, next, within)
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(key, value)
	case v.Kind() == reflect.Struct:
		within[t] = true
		for i := range v.NumField() {
			if t.Field(i).IsExported() {
				fill(v.Field(i), next, within)
			}
		}
		delete(within, t)
	case v.Kind() == reflect.String:
		v.SetString("text" + suffix(next()))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(1+next()) * 1e9)
	case v.CanUint():
		v.SetUint(uint64(1+next()) * 1e9)
	case v.CanFloat():
		v.SetFloat(float64(1+next()) / 2)
	case v.Kind() == reflect.Interface && v.NumMethod() == 0:
		v.Set(reflect.ValueOf("any"))
	}
}

func suffix(n int) string {
	if n == 0 {
		return ""
	}
	return "-" + strconv.Itoa(n)
}
