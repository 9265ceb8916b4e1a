package logging

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/rs/zerolog"
)

// CoreLines returns a writer for what the cores write to standard error, a Write
// for one or more whole lines, from several goroutines. JSON lines get the field
// component "core" and are dropped if the levels in force say so; any other line,
// such as one of a panic's trace, becomes the message of a line of level warn.
func (l *Logs) CoreLines() *CoreLines { return &CoreLines{l} }

// CoreLines writes the lines of the cores.
type CoreLines struct{ logs *Logs }

// coreField is what is put into the lines.
var coreField = fmt.Appendf(nil, `{"component":%q`, Core)

// Write writes whole lines. It fails if the file cannot be written.
func (w *CoreLines) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		if err := w.writeLine(bytes.TrimSpace(line)); err != nil {
			return 0, err
		}
	}
	return len(lines), nil
}

func (w *CoreLines) writeLine(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var said struct {
		Level     string `json:"level"`
		Component string `json:"component"`
	}
	if text[0] != '{' || json.Unmarshal(text, &said) != nil {
		return w.write(zerolog.WarnLevel, w.wrapped(text))
	}
	level, err := zerolog.ParseLevel(said.Level)
	if err != nil || level == zerolog.NoLevel {
		level = zerolog.InfoLevel
	}
	if said.Component != "" {
		return w.write(level, append(bytes.Clone(text), '\n'))
	}
	out := append(make([]byte, 0, len(coreField)+len(text)+2), coreField...)
	if rest := bytes.TrimSpace(text[1:]); rest[0] != '}' {
		out = append(out, ',')
	}
	out = append(append(out, text[1:]...), '\n')
	return w.write(level, out)
}

func (w *CoreLines) write(level zerolog.Level, line []byte) error {
	if level < w.logs.levels.Load().of(Core) {
		return nil
	}
	_, err := w.logs.out.Write(line)
	return err
}

// wrapped makes a line of text that is none.
func (w *CoreLines) wrapped(text []byte) []byte {
	var b bytes.Buffer
	log := zerolog.New(&b)
	log.Warn().Str("component", string(Core)).Str("process", "agentcore").Time(zerolog.TimestampFieldName, w.logs.now()).Msg(string(text))
	return b.Bytes()
}
