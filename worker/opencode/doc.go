// Package opencode drives OpenCode, `opencode run --format json`.
//
// For a worker.Task it prepares private data, state and configuration folders that reuse the user's own login, and the
// program's command line. It classifies each line that the program prints, and the
// program's end.
//
// What the task does not grant is denied by the last rules of the configuration, so that
// neither the user's nor the repository's configuration can allow more.
package opencode
