package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Record is one record of a Spool.
type Record struct {
	Number  uint64 // from 1, without gaps
	Kind    byte   // what it is, for its owner
	Payload []byte
}

// On disk a record is, with big-endian numbers:
//
//	length u32 | crc u32 | kind u8 | number u64 | synced u64 | payload
//
// crc is the CRC-32C of all the rest. synced is the number up to which records were known to be durable when this one was
// written: what is missing or damaged up to there is a damage, and no write that a crash has torn.
const recordHead = 4 + 4 + 1 + 8 + 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func recordSize(payload int) int64 { return recordHead + int64(payload) }

func appendRecord(b []byte, r Record, synced uint64) []byte {
	at := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Payload)))
	b = append(b, 0, 0, 0, 0, r.Kind)
	b = binary.BigEndian.AppendUint64(b, r.Number)
	b = binary.BigEndian.AppendUint64(b, synced)
	b = append(b, r.Payload...)
	binary.BigEndian.PutUint32(b[at+4:], recordSum(b[at:]))
	return b
}

func recordSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:])
}

// head is what stands before a payload.
type head struct {
	length         int
	sum            uint32
	kind           byte
	number, synced uint64
}

func parseHead(b []byte) head {
	return head{length: int(binary.BigEndian.Uint32(b)), sum: binary.BigEndian.Uint32(b[4:]), kind: b[8],
		number: binary.BigEndian.Uint64(b[9:]), synced: binary.BigEndian.Uint64(b[17:])}
}

// parseRecord reads the record that b begins with. The error says why there is none.
func parseRecord(b []byte, most int) (Record, head, error) {
	if len(b) < recordHead {
		return Record{}, head{}, fmt.Errorf("%d bytes are no record; one has at least %d", len(b), recordHead)
	}
	h := parseHead(b)
	switch {
	case h.length > most:
		return Record{}, h, fmt.Errorf("the record has a length of %d bytes; the most is %d", h.length, most)
	case len(b) < recordHead+h.length:
		return Record{}, h, fmt.Errorf("the record has %d bytes, and %d are there", recordHead+h.length, len(b))
	}
	b = b[:recordHead+h.length]
	if sum := recordSum(b); sum != h.sum {
		return Record{}, h, fmt.Errorf("the checksum of the record is %08x; it should be %08x", sum, h.sum)
	}
	return Record{Number: h.number, Kind: h.kind, Payload: b[recordHead:]}, h, nil
}
