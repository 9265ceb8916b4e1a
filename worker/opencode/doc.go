// Package opencode drives OpenCode, `opencode run --format json`.
//
// In comes a worker.Task; out come the program's command line, private data,
// state and configuration folders that reuse the user's own login, the meaning
// of each line that the program prints, and what its end amounts to. What the
// task does not grant is denied by rules that stand last, so that neither the
// user's nor the repository's configuration can allow more.
package opencode
