package telemetry

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of OTLP (opentelemetry-proto v1, trace.proto and common.proto) that a
// trace needs, encoded field by field: OpenTelemetry's SDK, its exporter and the gRPC
// that these import would make the program a tenth larger. The tests decode them with
// the generated types.

// attr is an attribute. Its value is a string, a bool, an int64 or a float64.
type attr struct {
	key   string
	value any
}

const (
	schemaURL    = "https://opentelemetry.io/schemas/1.43.0" // whose names the attributes have
	kindInternal = 1
	statusError  = 2
	// spanFlags say that the trace is sampled, and that the parent is of this process.
	spanFlags = 0x101
)

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

// appendText appends a text, which has to be UTF-8 or the collector drops all of the message.
func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), strings.ToValidUTF8(text, "\uFFFD"))
}

func appendInt(b []byte, field protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(n))
}

func appendTime(b []byte, field protowire.Number, at time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(at.UnixNano()))
}

// appendAttrs appends KeyValues.
func appendAttrs(b []byte, field protowire.Number, attrs []attr) []byte {
	for _, a := range attrs {
		var value []byte
		switch v := a.value.(type) {
		case string:
			value = appendText(nil, 1, v)
		case bool:
			value = appendInt(nil, 2, int64(protowire.EncodeBool(v)))
		case int64:
			value = appendInt(nil, 3, v)
		case float64:
			value = protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), math.Float64bits(v))
		}
		b = appendMessage(b, field, appendMessage(appendText(nil, 1, a.key), 2, value))
	}
	return b
}

// encodeSpan returns a Span. parent is nil of a root.
func encodeSpan(trace [16]byte, id [8]byte, parent []byte, s *span) []byte {
	b := appendMessage(appendMessage(nil, 1, trace[:]), 2, id[:])
	if parent != nil {
		b = appendMessage(b, 4, parent)
	}
	b = appendInt(appendText(b, 5, s.name), 6, kindInternal)
	b = appendAttrs(appendTime(appendTime(b, 7, s.begin), 8, s.end), 9, s.attrs)
	for _, c := range s.commands {
		b = appendMessage(b, 11, appendAttrs(appendText(appendTime(nil, 1, c.at), 2, "command"), 3,
			[]attr{{"process.executable.name", c.name}, {"process.exit.code", int64(c.exit)}}))
	}
	if s.failed {
		b = appendMessage(b, 15, appendInt(appendText(nil, 2, string(s.class)), 3, statusError))
	}
	return protowire.AppendFixed32(protowire.AppendTag(b, 16, protowire.Fixed32Type), spanFlags)
}

// encodeRequest returns an ExportTraceServiceRequest of spans of this program.
func encodeRequest(version string, spans [][]byte) []byte {
	scope := appendMessage(nil, 1, appendText(appendText(nil, 1, "github.com/agentsched/agentsched"), 2, version))
	for _, s := range spans {
		scope = appendMessage(scope, 2, s)
	}
	resource := appendAttrs(nil, 1, []attr{{"service.name", "agentsched"}, {"service.version", version}})
	return appendMessage(nil, 1, appendText(appendMessage(appendMessage(nil, 1, resource), 2, scope), 3, schemaURL))
}

// decodeRejected reads an ExportTraceServiceResponse: how many spans were not
// accepted, and why. What it does not understand says nothing.
func decodeRejected(b []byte) (spans int64, why string) {
	partial := fields(b)[1]
	for field, value := range fields(partial) {
		switch n, size := protowire.ConsumeVarint(value); {
		case field == 1 && size > 0:
			spans = int64(n)
		case field == 2:
			why = string(value)
		}
	}
	return spans, why
}

// fields returns the fields of a message, of varints the encoded value; nil if it is none.
func fields(b []byte) map[protowire.Number][]byte {
	all := map[protowire.Number][]byte{}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(field, kind, b)
		if size < 0 {
			return nil
		}
		value := b[:size]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		all[field], b = value, b[size:]
	}
	return all
}
