package worker

// ToolServer is a server of MCP, over streamable HTTP.
type ToolServer struct {
	Name string // as the program is to call it
	URL  string
	Key  string // a bearer token, which is the run's own: worth nothing to others, or after the run
}

// ToolURLVariable and ToolKeyVariable hold ToolServer.URL and Key where a program takes them from
// variables.
const (
	ToolURLVariable = "AGENTSCHED_MCP_URL"
	ToolKeyVariable = "AGENTSCHED_MCP_KEY"
)

// Tooled is an optional part of an Adapter, for one that tells its program of Task.Tools. The
// programs of others find them by the variables.
type Tooled interface {
	// Tooled reports whether the program waits for the answer of a tool for as long as that takes.
	Tooled() bool
}
