package wire

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentsched/agentsched/ipc"
)

const (
	// MaxFrame is the longest payload of a frame, in bytes.
	MaxFrame = ipc.MaxFrame
	// Window is how many bytes of a channel may be on their way in one direction that the
	// application at the other end has not taken.
	Window = 2 * (MaxFrame + frameCost)
	// MaxChannels is the largest number of channels of a link.
	MaxChannels = 256

	frameCost = 64      // bytes that a frame counts besides its payload, for what it costs to keep
	maxReason = 1 << 10 // bytes
	dataHead  = 1 + 2 + 8 + 8
)

type kind byte

const (
	kindData kind = 1 + iota
	kindEnd
	kindAck
	kindWindow
	kindHeartbeat
	kindBye
)

var kindNames = [...]string{"nothing", "data", "end", "ack", "window", "heartbeat", "bye"}

// sizes are the least and most bytes of a message of each kind.
var sizes = [...][2]int{
	kindData:      {dataHead + 1, dataHead + MaxFrame},
	kindEnd:       {dataHead, dataHead + maxReason},
	kindAck:       {9, 9},
	kindWindow:    {11, 11},
	kindHeartbeat: {33, 33},
	kindBye:       {1, 1 + maxReason},
}

func (k kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// message is one of the messages of the package comment. Fields that its kind has not are zero.
type message struct {
	kind    kind
	channel uint16
	number  uint64
	ack     uint64
	taken   uint64
	reading uint64 // ns
	echo    uint64 // ns
	held    uint64 // ns
	payload []byte // of data, and the reason of end and bye
}

// ProtocolError says that the other end sent what it may not. The connection was closed for it.
type ProtocolError struct {
	Where string // the kind of the message, or a header of the handshake
	Why   string // the value, and what would be right
}

func (e *ProtocolError) Error() string { return "wire: " + e.Where + ": " + e.Why }

func wrong(where any, format string, args ...any) *ProtocolError {
	return &ProtocolError{Where: fmt.Sprint(where), Why: fmt.Sprintf(format, args...)}
}

func (m *message) appendTo(b []byte) []byte {
	u64 := binary.BigEndian.AppendUint64
	b = append(b, byte(m.kind))
	switch m.kind {
	case kindData, kindEnd:
		b = u64(u64(binary.BigEndian.AppendUint16(b, m.channel), m.number), m.ack)
	case kindAck:
		b = u64(b, m.ack)
	case kindWindow:
		b = u64(binary.BigEndian.AppendUint16(b, m.channel), m.taken)
	case kindHeartbeat:
		b = u64(u64(u64(u64(b, m.ack), m.reading), m.echo), m.held)
	}
	return append(b, m.payload...)
}

// decode reads one message. Its payload is a part of b. The error is a *ProtocolError.
func decode(b []byte) (message, error) {
	if len(b) == 0 {
		return message{}, wrong("message", "it is empty; its first byte must be a kind of 1 to 6")
	}
	m := message{kind: kind(b[0])}
	if m.kind < kindData || m.kind > kindBye {
		return message{}, wrong("message", "its first byte is %d; it must be a kind of 1 to 6", b[0])
	}
	if size := sizes[m.kind]; len(b) < size[0] || len(b) > size[1] {
		return message{}, wrong(m.kind, "the message has %d bytes; it must have %d to %d", len(b), size[0], size[1])
	}
	u64 := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	switch m.kind {
	case kindData, kindEnd:
		m.channel, m.number, m.ack, m.payload = binary.BigEndian.Uint16(b[1:]), u64(3), u64(11), b[dataHead:]
	case kindAck:
		m.ack = u64(1)
	case kindWindow:
		m.channel, m.taken = binary.BigEndian.Uint16(b[1:]), u64(3)
	case kindHeartbeat:
		m.ack, m.reading, m.echo, m.held = u64(1), u64(9), u64(17), u64(25)
	case kindBye:
		m.payload = b[1:]
	}
	if m.kind != kindData && !utf8.Valid(m.payload) {
		return message{}, wrong(m.kind, "the reason %.40q is not UTF-8", m.payload)
	}
	return m, nil
}

// cutReason makes a text short enough for a message.
func cutReason(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxReason {
		return s
	}
	s = s[:maxReason]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
