// Package runmcp is the MCP server of one run: the tools by which its agent uses the scheduler.
//
// It speaks MCP over streamable HTTP, without sessions, to whoever shows the run's key. What the
// tools do is the core's and the scheduler's doing (Scheduler); this package describes them,
// bounds how often and with how much they are called, and cleans what other agents wrote.
package runmcp
