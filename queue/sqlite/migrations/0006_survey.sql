-- What is asked of the queue as a whole (survey.go). None of these indexes is
-- written when a job is submitted or claimed: they hold what has ended.

-- With how it ended, for counts by time.
DROP INDEX entries_ended;
CREATE INDEX entries_ended ON entries (completed_at, state, exit_kind) WHERE completed_at IS NOT NULL;

-- In the order of submission within a state and tenant.
CREATE INDEX entries_done ON entries (state, tenant) WHERE completed_at IS NOT NULL;

-- With the tenant, for counts.
DROP INDEX entries_held;
CREATE INDEX entries_held ON entries (held, tenant) WHERE held <> '';

-- Attempts that have ended, by either end. Those that run are found by their
-- entries, which are dispatched.
CREATE INDEX attempts_started ON attempts (started_at, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX attempts_ended ON attempts (ended_at, started_at) WHERE ended_at IS NOT NULL;

-- job.Spec.Worker, the first choice.
ALTER TABLE entries ADD COLUMN worker TEXT NOT NULL DEFAULT '';
UPDATE entries SET worker = coalesce((SELECT spec ->> '$.worker' FROM specs WHERE entry = entries.seq), '');
