-- held is queue.Entry.Held. What is held lies in a pool from which nobody
-- claims, which is -3 - p for the pool p to which it goes back. So it is in
-- nobody's way, and what is overdue of it is still found with the pool's.
ALTER TABLE entries ADD COLUMN held   TEXT    NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN joined INTEGER NOT NULL DEFAULT 0; -- job.Flow.Joined

CREATE INDEX entries_held ON entries (held) WHERE held <> '';

-- Jobs whose batch may not lose any of its jobs yet.
CREATE INDEX entries_joined ON entries (batch) WHERE joined AND state IN ('queued', 'dispatched');

-- What waits for a person does not expire.
DROP INDEX entries_deadline;
CREATE INDEX entries_deadline ON entries (pool, deadline) WHERE state = 'queued' AND deadline IS NOT NULL AND held <> 'approval';

-- What else an entry has of a workflow, see flow.go. Few have any.
CREATE TABLE flows (
    entry INTEGER PRIMARY KEY REFERENCES entries (seq),
    flow  TEXT NOT NULL -- JSON
);

ALTER TABLE batches ADD COLUMN workflow TEXT NOT NULL DEFAULT ''; -- job.Workflow as JSON, '' is none

-- queue.Record. Rows have numbers, so that those behind a damaged page are found.
CREATE TABLE records (
    seq   INTEGER PRIMARY KEY,
    space TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    value TEXT    NOT NULL, -- JSON
    at    INTEGER NOT NULL,
    UNIQUE (space, key)
);
