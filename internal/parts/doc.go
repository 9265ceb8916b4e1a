// Package parts keeps the long-lived parts of a program running, in the order in
// which they depend on each other.
//
// In come parts, each of which may rely on those before it; when one ends before
// it was told to, it and those after it are stopped and started again: the
// strategy rest_for_one of Erlang/OTP's supervisor. One that keeps ending ends
// them all. A panic is not caught: what it leaves cannot be trusted, and all that
// matters is durable.
package parts
