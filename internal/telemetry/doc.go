// Package telemetry makes the scheduler visible to Prometheus and OpenTelemetry.
//
// In come the moments of jobs (scheduler.Observer), the scheduler's status and the
// queue's survey, which are asked for at each scrape; out go metrics, all of them
// listed in docs/observability.md, and one trace for each job that ends.
//
// Nothing of it waits for anybody: what a collector of traces does not take in
// time is dropped and counted. Labels are bounded, and each text that goes out has
// been through Config.Redact.
package telemetry
