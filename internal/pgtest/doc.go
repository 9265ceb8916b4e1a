// Package pgtest runs real PostgreSQL servers for tests, and a relay before them that
// loses connections. Only tests and benchmarks import it.
//
// A server has a temporary folder of its own, a socket in it and a port of 127.0.0.1,
// which asks for a password and offers TLS. Nothing of it is left when the process that
// started it has ended, however that ended: the server is told by the kernel, and Main
// has a keeper remove the folder.
//
// The programs are those of the folder that AGENTSCHED_TEST_POSTGRES names, otherwise
// Debian's newest, otherwise those on PATH. Without any a test is skipped; where
// AGENTSCHED_REQUIRE_POSTGRES is set it fails.
package pgtest
