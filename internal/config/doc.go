// Package config reads the scheduler's configuration file: YAML in, and variables
// that stand above it; a Config out in which whatever both leave out has its
// default.
//
// It is as strict as a job file: nothing is ignored, and all mistakes of a
// file are reported at once, each with its position. docs/config.md describes
// the fields, docs/config.schema.json says the same to editors. Where the
// scheduler keeps its state is no matter of the configuration but of a flag.
package config
