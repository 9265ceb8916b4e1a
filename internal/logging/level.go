package logging

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/fields"
)

// Level is the least severity of the lines that are written.
type Level string

// The levels, from the one that writes the most to the one that writes nothing.
const (
	Debug Level = "debug"
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
	Off   Level = "off"
)

// Levels lists the levels, from the one that writes the most.
func Levels() []Level { return []Level{Debug, Info, Warn, Error, Off} }

// ParseLevel reads a level. The error names s and what would be right.
func ParseLevel(s string) (Level, error) {
	if l := Level(s); slices.Contains(Levels(), l) {
		return l, nil
	}
	return "", fmt.Errorf("%q is no level of log lines, want one of %s", s, strings.Join(fields.Words[Level](), ", "))
}

// zerolog returns l as zerolog has it; what is no level is Info.
func (l Level) zerolog() zerolog.Level {
	switch l {
	case Debug:
		return zerolog.DebugLevel
	case Warn:
		return zerolog.WarnLevel
	case Error:
		return zerolog.ErrorLevel
	case Off:
		return zerolog.Disabled
	}
	return zerolog.InfoLevel
}

// Component names a part of the program in the field "component" of its lines.
type Component string

// The components.
const (
	Scheduler   Component = "scheduler"    // the loop that gives out jobs, and the program itself
	Store       Component = "store"        // the queue's database
	Supervisor  Component = "supervisor"   // starts and watches the cores
	Core        Component = "core"         // the cores' own lines
	Nodes       Component = "nodes"        // hosts that run jobs for a scheduler, at both ends
	Process     Component = "process"      // process trees and cgroups
	API         Component = "api"          // requests
	Hooks       Component = "hooks"        // telling of escalations and questions
	Triggers    Component = "triggers"     // what submits jobs by itself
	Upkeep      Component = "upkeep"       // forgetting what has ended
	DeadLetters Component = "dead_letters" // requeueing them
	Audit       Component = "audit"        // the audit log
	Telemetry   Component = "telemetry"    // metrics and traces
	Daemon      Component = "daemon"       // readiness, watchdog, upgrade
)

// Components lists the components.
func Components() []Component {
	return []Component{Scheduler, Store, Supervisor, Core, Nodes, Process, API, Hooks, Triggers, Upkeep, DeadLetters, Audit, Telemetry, Daemon}
}

// Format is the form of the lines on the stream.
type Format string

// The formats.
const (
	Auto    Format = "auto"    // Console on a terminal, else JSON
	JSON    Format = "json"    // one object a line
	Console Format = "console" // for people
)

// Formats lists the formats.
func Formats() []Format { return []Format{Auto, JSON, Console} }

// FieldTag lists every level.
func (Level) FieldTag() reflect.StructTag { return fields.Enum(Levels()...) }

// FieldTag lists every component.
func (Component) FieldTag() reflect.StructTag { return fields.Enum(Components()...) }

// FieldTag lists every format.
func (Format) FieldTag() reflect.StructTag { return fields.Enum(Formats()...) }
