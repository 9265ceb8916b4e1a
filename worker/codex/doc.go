// Package codex drives the Codex CLI, `codex app-server`.
//
// For a worker.Task it prepares a private CODEX_HOME that reuses the user's own login, and a
// conversation over the program's standard input and output: a thread, and one turn after the
// other. The program asks before it does what the task does not grant outright; it can be told
// something and be interrupted while it works, and what each call of its model used is known.
//
// Codex gets no right that the task does not grant, and nothing in the workspace configures it.
package codex
