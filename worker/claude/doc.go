// Package claude drives Claude Code, `claude -p` with streams of JSON in
// both directions.
//
// For a worker.Task it prepares a private CLAUDE_CONFIG_DIR that reuses the user's own login, and the
// program's command line. It classifies each line that the program prints, and the
// program's end.
//
// What the task does not grant is asked about, and neither the user's nor the repository's
// settings can allow more. Tools that nothing grants are left out unless the task says that
// there is somebody to ask.
package claude
