-- pool says who may claim an entry: 0 whoever claims what is shared, -1 those
-- who claim work for programs outside, else whoever claims from that private
-- batch. All batches of before were for the run that submitted them.
ALTER TABLE batches ADD COLUMN private INTEGER NOT NULL DEFAULT 0;
UPDATE batches SET private = 1;

-- The table is made anew for its unique key: with the name before the tenant,
-- what many tenants submit at once stands together. The specification has a
-- table of its own, since it is never changed and the rest often.
CREATE TABLE specs (
    entry INTEGER PRIMARY KEY REFERENCES entries (seq),
    spec  TEXT NOT NULL -- job.Spec as JSON
);
INSERT INTO specs (entry, spec) SELECT seq, spec FROM entries ORDER BY seq;
CREATE TABLE entries_new (
    seq              INTEGER PRIMARY KEY, -- order of submission
    id               TEXT    NOT NULL UNIQUE,
    batch            INTEGER NOT NULL REFERENCES batches (seq),
    pool             INTEGER NOT NULL,
    tenant           TEXT    NOT NULL,
    name             TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    class            TEXT    NOT NULL DEFAULT '', -- job.Spec.Class, '' if that is standard
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
    key              TEXT    NOT NULL DEFAULT '', -- of its line, see duplicate.go
    waits_for        TEXT    NOT NULL DEFAULT '', -- ids of entries, '' none
    coalesced_with   TEXT    NOT NULL DEFAULT '',
    superseded_by    TEXT    NOT NULL DEFAULT '',
    UNIQUE (batch, name, tenant)
);
INSERT INTO entries_new (seq, id, batch, pool, tenant, name, priority, class, state, exit_kind, created_at, runnable_at, deadline,
        dispatched_at, completed_at, holder, fence, lease_until, choice, attempts, counted, spent, spent_time, session,
        session_worker, feedback, waiting, dead_letter, cancel_requested, key, waits_for, coalesced_with, superseded_by)
    SELECT seq, id, batch, batch, tenant, name, priority, iif(class = 'standard', '', class), state, exit_kind, created_at, runnable_at, deadline,
        dispatched_at, completed_at, holder, fence, lease_until, choice, attempts, counted, spent, spent_time, session,
        session_worker, feedback, waiting, dead_letter, cancel_requested, key, waits_for, coalesced_with, superseded_by
    FROM entries ORDER BY seq;
DROP TABLE entries;
ALTER TABLE entries_new RENAME TO entries;

-- A claim reads the lanes: of each pool, tenant and priority what can be
-- claimed, in its order, with the class by which a claim counts. It holds only
-- what waits, so that a million finished jobs cost a claim nothing.
CREATE INDEX entries_lane ON entries (pool, tenant, priority, runnable_at, id, class) WHERE state = 'queued' AND waits_for = '';
CREATE INDEX entries_deadline ON entries (pool, deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE UNIQUE INDEX entries_fence ON entries (fence) WHERE state = 'dispatched';

-- The lines of duplicate.go, and who waits in them: for an entry, and of a pool.
CREATE INDEX entries_line ON entries (tenant, key, coalesced_with, seq) WHERE key <> '' AND state IN ('queued', 'dispatched');
CREATE INDEX entries_waiting ON entries (waits_for, seq) WHERE waits_for <> '';
CREATE INDEX entries_waiting_pool ON entries (pool, tenant, key) WHERE waits_for <> '';

-- What a list can ask for.
CREATE INDEX entries_ended ON entries (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX entries_coalesced ON entries (coalesced_with) WHERE coalesced_with <> '';
CREATE INDEX entries_superseded ON entries (superseded_by) WHERE superseded_by <> '';
