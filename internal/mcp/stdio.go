package mcp

import (
	"context"
	"errors"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentsched/agentsched/client"
)

// Serve speaks with one client over in and out until that closes in, or ctx ends. What it asks the scheduler, it
// asks by c, which stays the caller's. Nothing else may be written to out.
func Serve(ctx context.Context, c *client.Client, in io.ReadCloser, out io.WriteCloser, opt Options) error {
	s := newServer(opt, operate, func(*sdk.CallToolRequest) *client.Client { return c }, nil, nil)
	err := s.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}
