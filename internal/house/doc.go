// Package house holds the tests that keep the project's layout: who may import
// whom, and that every package says what it is.
package house
