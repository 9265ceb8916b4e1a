// Package testrun holds what tests that start processes share: patience that is
// measured by what the machine had time for, processes that stand still, and a
// keeper that ends what a test left when its own process was cut off. Only tests import it.
package testrun
