// Package codex drives the Codex CLI, `codex exec --json`.
//
// In comes a worker.Task; out come the program's command line, a private
// CODEX_HOME that reuses the user's own login, the meaning of each line that
// the program prints, and what its end amounts to. Nothing is granted that the
// task does not grant: what Codex cannot enforce is refused before it starts.
package codex
