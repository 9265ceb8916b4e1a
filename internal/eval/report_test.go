package eval

import (
	"strings"
	"testing"
)

func TestReadReport(t *testing.T) {
	for _, c := range []struct{ text, read, found string }{ // "" is no error
		{`{"quality": 0.9, "comment": "good"}`, "", ""},
		{`{"quality": 1.2}`, "quality: is 1.2, want a number from 0 to 1, where 1 is best", "quality: is 1.2, want a number from 0 to 1, where 1 is best"},
		{`{"error_rate": -0.1, "quality": 1}`, "error_rate: is -0.1", "error_rate: is -0.1"},
		{`{"quality": "high"}`, "quality: is a string, want a number from 0 to 1", "quality: is a string, want a number"},
		{`{"qualty": 0.9}`, "qualty: is unknown, want some of quality, adherence", "names no dimension, want at least one of quality"},
		{`{"quality": 0.9, "reason": "x"}`, "reason: is unknown", ""},
		{"```json\n{\"quality\": 0.9}\n```", "is no report in JSON", ""},
		{`"{\"quality\": 0.9}"`, "is no report in JSON", ""},
		{`{}`, "names no dimension", "names no dimension"},
		{`{"quality": 0.9} {"quality": 0.1}`, "there is more after the JSON object", "is no report in JSON"},
		{`[0.9]`, `is no report in JSON, want e.g. {"quality": 0.9}: it is a JSON array`, "is no report in JSON"},
		{``, "is no report in JSON", "is no report in JSON"},
		{`{"quality": null}`, "names no dimension", "names no dimension"},
	} {
		for how, x := range map[string]struct {
			read func([]byte) (Report, error)
			want string
		}{"read": {ReadReport, c.read}, "found": {FindReport, c.found}} {
			r, err := x.read([]byte(c.text))
			switch {
			case x.want == "" && (err != nil || *r.Quality != 0.9):
				t.Errorf("%s %q: %+v, %v", how, c.text, r, err)
			case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
				t.Errorf("%s %q: %v, want %s", how, c.text, err, x.want)
			}
		}
	}
}
