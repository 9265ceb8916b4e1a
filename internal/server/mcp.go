package server

import "net/http"

// mcpPath is the one path of the Model Context Protocol.
const mcpPath = "/mcp"

// agentProtocol serves the agents of people.
type agentProtocol struct{ handler http.Handler }

func (a agentProtocol) routes(r *router) {
	const more = "\nThe protocol is MCP over streamable HTTP; docs/mcp.md lists the tools. Each tool asks a route of this document, and needs its role."
	r.plain(route{id: "send-mcp", method: "POST", path: mcpPath, role: read, tag: "mcp", body: mcpBody, streams: true,
		about: "Send messages of a client of the Model Context Protocol." + more}, eventType, mcpPath, a.handler)
	r.plain(route{id: "receive-mcp", method: "GET", path: mcpPath, role: read, tag: "mcp", streams: true,
		about: "Receive what is told to a client of the Model Context Protocol." + more}, eventType, mcpPath, a.handler)
	r.plain(route{id: "end-mcp", method: "DELETE", path: mcpPath, role: read, tag: "mcp", status: http.StatusNoContent,
		about: "End a session of the Model Context Protocol." + more}, "", mcpPath, a.handler)
}

// mcpBody bounds a request, in bytes.
const mcpBody = 4 << 20
