// Package workertest is the suite that every worker.Adapter must pass, those
// of this project and yours.
//
// Run takes an adapter and, if you have them, transcripts: recorded output of its program
// with the expected events and result of each. It starts no program. It checks what the
// adapter prepares, how it reads recorded, malicious and random output, and above all that
// it never reports a failure as a success. Fuzz checks the last for as long as you like,
// and Drive runs a session's real program.
package workertest
