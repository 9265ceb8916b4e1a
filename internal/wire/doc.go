// Package wire joins a node, a host that runs agents, with the scheduler that leads.
//
// The node dials out (Dialer) and the scheduler accepts (Acceptor). Between them is a Link: a
// session that outlives connections. It has channels, each an ordered and reliable stream of
// frames in both directions: 0 is for control, n for the node's agentcore n, whose frames are
// those of package ipc. A Spool keeps what a node has to say on its disk until the application
// at the other end has acknowledged it.
//
// # Handshake
//
// One WebSocket, subprotocol Protocol, is one connection of a session. The request says which
// session it goes on with and up to which number it has received (HeaderSession, HeaderReceived),
// and how many channels it has (HeaderChannels). The answer says the same of the other end. A
// session that is not known there is answered with the id of a new one.
//
// # Messages
//
// Each WebSocket message is binary and holds one message. Numbers are big-endian.
//
//	data       1 | channel u16 | number u64 | ack u64 | payload, 1 byte to MaxFrame
//	end        2 | channel u16 | number u64 | ack u64 | reason, at most 1 KiB of UTF-8
//	ack        3 | ack u64
//	window     4 | channel u16 | taken u64
//	heartbeat  5 | ack u64 | reading u64 | echo u64 | held u64
//	bye        6 | reason, at most 1 KiB of UTF-8
//
// Data and ends are numbered from 1, over all channels of a direction. An ack is the number up
// to which everything has been received; what is not acknowledged is kept, and sent again on the
// next connection. A channel may have Window bytes on their way that the application at the other
// end has not taken, where a frame counts its payload and frameCost; taken is how many it has
// taken since the session began. So a channel that nobody reads holds up no other one, and
// no memory grows without bound. A heartbeat has the sender's monotonic reading in nanoseconds,
// the reading of the last heartbeat that it received (0 before the first), and for how many
// nanoseconds it has held that.
//
// Whatever else arrives ends the connection with a ProtocolError, and the session goes on with
// the next one.
package wire
