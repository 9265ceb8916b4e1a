// Package eval judges finished work, and remembers how good whoever did it is.
//
// In come a job that has ended, its attempts, and what commands, reports, other
// jobs and people say of it; out comes a vector of six dimensions in [0, 1], its
// weighted composite, and the reputation of the worker, the agent and the tenant:
// an exponentially weighted average of the composites, by domain. What is counted
// is a record of the store's Journal, written once per job, attempt and source;
// the reputation is a fold over those records, and kept beside them.
//
// The formulas are pure (Measure, Weights, Reputation.Next); Evaluator joins them
// to a store. docs/evaluation.md tells the same to a user.
package eval
