-- Times are nanoseconds since 1970 in UTC; the smallest integer is Go's zero
-- time. Columns that may be NULL are pointers in Go.

CREATE TABLE batches (
    seq        INTEGER PRIMARY KEY, -- order of submission
    id         TEXT    NOT NULL UNIQUE,
    source     TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    closed_at  INTEGER
);
CREATE INDEX batches_source ON batches (source);

CREATE TABLE entries (
    seq              INTEGER PRIMARY KEY, -- order of submission
    id               TEXT    NOT NULL UNIQUE,
    batch            INTEGER NOT NULL REFERENCES batches (seq),
    tenant           TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    state            TEXT    NOT NULL DEFAULT 'queued',
    exit_kind        TEXT    NOT NULL DEFAULT '',
    created_at       INTEGER NOT NULL,
    runnable_at      INTEGER NOT NULL,
    deadline         INTEGER,
    dispatched_at    INTEGER,
    completed_at     INTEGER,
    holder           TEXT    NOT NULL DEFAULT '',
    fence            INTEGER NOT NULL DEFAULT 0,
    lease_until      INTEGER,
    choice           INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    counted          INTEGER NOT NULL DEFAULT 0,
    spent            TEXT    NOT NULL DEFAULT '', -- job.Usage as JSON, '' is none
    spent_time       INTEGER NOT NULL DEFAULT 0,  -- nanoseconds
    session          TEXT    NOT NULL DEFAULT '',
    session_worker   TEXT    NOT NULL DEFAULT '',
    feedback         TEXT    NOT NULL DEFAULT '',
    waiting          TEXT    NOT NULL DEFAULT '',
    dead_letter      TEXT    NOT NULL DEFAULT '',
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    spec             TEXT    NOT NULL,            -- job.Spec as JSON
    UNIQUE (batch, tenant, name)
);

-- A claim reads these in their order. They hold only what waits, so that a
-- million finished jobs cost a claim nothing.
CREATE INDEX entries_claim ON entries (priority DESC, runnable_at, id) WHERE state = 'queued';
CREATE INDEX entries_claim_batch ON entries (batch, priority DESC, runnable_at, id) WHERE state = 'queued';
CREATE INDEX entries_deadline ON entries (deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE INDEX entries_deadline_batch ON entries (batch, deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE UNIQUE INDEX entries_fence ON entries (fence) WHERE state = 'dispatched';

CREATE TABLE attempts (
    entry         INTEGER NOT NULL REFERENCES entries (seq),
    number        INTEGER NOT NULL,
    fence         INTEGER NOT NULL,
    worker        TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    session       TEXT    NOT NULL,
    started_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    lost          INTEGER NOT NULL DEFAULT 0,
    outcome       TEXT    NOT NULL DEFAULT '', -- job.Outcome as JSON, '' while it runs
    PRIMARY KEY (entry, number)
) WITHOUT ROWID;

-- AUTOINCREMENT: a cursor is not given out twice even if events are deleted.
CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY AUTOINCREMENT,
    entry   INTEGER NOT NULL REFERENCES entries (seq),
    attempt INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    body    TEXT    NOT NULL, -- job.Event as JSON
    UNIQUE (entry, attempt, seq)
);
CREATE INDEX events_entry ON events (entry, cursor);

-- The number of the latest claim.
CREATE TABLE fence (last INTEGER NOT NULL);
INSERT INTO fence (last) VALUES (0);
