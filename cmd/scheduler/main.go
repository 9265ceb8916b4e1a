// Command scheduler runs coding agents as an operating system runs processes.
// Run `scheduler --help`, or read README.md.
package main

import "github.com/agentsched/agentsched/app"

func main() { app.Main() }
