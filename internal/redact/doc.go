// Package redact takes secrets out of text.
//
// In come the values that are known to be secret (the environment's variables
// whose names say so, and what callers add) and any text; out goes the text with
// [redacted:NAME] in place of each of those values, of their common encodings
// (JSON, URL, base64, hexadecimal), and of everything that has the shape of a
// well-known token. Text without secrets comes back as it is, byte for byte, and
// redacting twice changes nothing. Everything works line by line: a text gives
// the same whether it comes whole, in lines or through a Writer in any pieces.
//
// What it cannot find: a value that it was not told and that has no known shape,
// one that is printed in an encoding of another kind, or in pieces.
package redact
