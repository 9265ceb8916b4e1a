// Package pipeline streams events through the stages of a pipeline.
//
// In come a job.Pipeline and what the jobs of its stages have answered; out go
// moves (parts to run, nodes that have ended), each already durable. The Log is
// the record of it all in the store's journal: the events, and for each stage a
// cursor. It promises that an input is acknowledged and its outputs are
// published in one write, so that a stage that dies is given again what it had
// not acknowledged and nothing is published twice; that events are numbered
// without gaps; and that a stage that does one thing at a time is given its
// events in their order. docs/pipelines.md says it for users.
//
// A stage runs in one of two ways. Log.Advance runs one-shot stages as parts of
// the stage's job, and may be asked at any time. A Feed joins a worker that
// lives as long as the pipeline to the log.
package pipeline
