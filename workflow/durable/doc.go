// Package durable gives a program steps that are computed once: an id, a
// computation, and a store that remembers the first result.
//
// In come a context that carries a Run and a function; out goes the function's
// result, which is on disk before anyone sees it. Asked again, by this process or
// by the one that takes its place after a kill at any instant, the step is
// answered from the store and the function is not called. So a program whose
// steps are deterministic given their inputs and each other's results ends with
// the same results however often it was killed, and no step is computed twice
// after its result was stored. A step that was cut short is computed again: its
// effects outside must allow that.
//
// Keep and Page are the same for steps that somebody else computes, e.g. a worker
// that reports them over the worker protocol.
package durable
