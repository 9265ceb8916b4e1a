// Package acp runs any agent that speaks version 1 of the Agent Client Protocol
// (agentclientprotocol.com) on its standard input and output: JSON-RPC 2.0, one message a
// line.
//
// The agent is the server. It is asked to initialize, to begin, load or fork a session,
// and then to answer prompts, one turn each. While it works it notifies of what it says,
// does and uses, and has requests of its own: whether it may, and to read and write files
// of the workspace, which the driver does for it. Messages have no place in a running
// turn; they begin the next one.
//
// What is sent are the structs of github.com/coder/acp-go-sdk. What is received is read
// with fewer fields and less strictly, since agents add values of their own everywhere.
package acp
