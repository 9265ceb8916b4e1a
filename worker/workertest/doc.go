// Package workertest is the suite that every worker.Adapter must pass, those
// of this project and yours.
//
// In comes an adapter and, if you have them, transcripts: what its program
// really printed, with what each amounts to. Run starts no program: it checks
// what the adapter prepares, what it makes of recorded, hostile and random
// output, and above all that it never calls a failure a success. Fuzz does the
// latter for as long as you like, and Drive runs a session's real program.
package workertest
