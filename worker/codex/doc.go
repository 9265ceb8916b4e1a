// Package codex drives the Codex CLI, `codex exec --json`.
//
// For a worker.Task it prepares a private CODEX_HOME that reuses the user's own login, and the
// program's command line. It classifies each line that the program prints, and the
// program's end.
//
// Codex gets no right that the task does not grant. What Codex cannot enforce is refused
// before it starts.
package codex
