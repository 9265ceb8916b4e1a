// Package e2e holds acceptance tests and nothing else: they start the real
// programs as a user does, on the real worker CLIs against a scripted model on
// loopback, and kill what a user's machine may kill.
//
// What a test may rely on is at the top of harness_test.go. The CLIs are looked
// for in AGENTSCHED_TEST_WORKERS, by default .cache/workers of this repository.
package e2e
