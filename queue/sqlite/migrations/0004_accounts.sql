-- requeued_from and requeued_as are ids of entries, '' none.
ALTER TABLE entries ADD COLUMN agent         TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN error_class   TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN requeued_from TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN requeued_as   TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN dropped_at    INTEGER;

-- The dead letters that wait for somebody, as few as they are.
CREATE INDEX entries_dead ON entries (completed_at)
    WHERE exit_kind = 'failed' AND requeued_as = '' AND dropped_at IS NULL;

-- What an attempt has been charged by its events, see ledger.go: '' nothing,
-- 'early' if the ledger does not know yet of events that are stored.
ALTER TABLE attempts ADD COLUMN charged TEXT NOT NULL DEFAULT '';

-- What was used. step counts steps of 15 minutes since 1970, in UTC. The tenant
-- and the step come first, since a grant asks by them.
CREATE TABLE ledger (
    tenant      TEXT    NOT NULL,
    step        INTEGER NOT NULL,
    agent       TEXT    NOT NULL,
    worker      TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    input       INTEGER NOT NULL, -- tokens, here and below
    cached      INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        INTEGER NOT NULL, -- billionths of a US dollar
    unknown     INTEGER NOT NULL, -- attempts of which some tokens have no price
    steps       INTEGER NOT NULL,
    commands    INTEGER NOT NULL,
    command_ms  INTEGER NOT NULL,
    wall        INTEGER NOT NULL, -- nanoseconds
    attempts    INTEGER NOT NULL,
    completed   INTEGER NOT NULL, -- entries, as succeeded
    PRIMARY KEY (tenant, step, agent, worker, model)
) WITHOUT ROWID;

-- queue.Grant; agent '' is the tenant as a whole, 0 no bound.
CREATE TABLE grants (
    tenant TEXT    NOT NULL,
    agent  TEXT    NOT NULL,
    dead   INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost   REAL    NOT NULL, -- US dollars
    wall   INTEGER NOT NULL, -- nanoseconds
    window INTEGER NOT NULL, -- nanoseconds
    PRIMARY KEY (tenant, agent)
) WITHOUT ROWID;

-- What is there already. The agent of an entry of before stands in its
-- specification only, and what ended it in the outcome of its latest attempt.
UPDATE entries SET agent = s.spec ->> '$.agent' FROM specs s
    WHERE s.entry = entries.seq AND instr(s.spec, '"agent"') AND s.spec ->> '$.agent' IS NOT NULL;
UPDATE entries SET error_class = coalesce((SELECT a.outcome ->> '$.class' FROM attempts a
        WHERE a.entry = entries.seq AND a.number = entries.attempts AND a.outcome <> ''), '')
    WHERE exit_kind = 'failed';

-- Attempts that have ended are charged what their outcome says, when they
-- ended; those that have not are charged by their events, when it is next
-- looked at them.
INSERT INTO ledger
SELECT tenant, step, agent, worker, model, sum(input), sum(cached), sum(cache_write), sum(output), sum(reasoning),
    CAST(round(sum(cost) * 1e9) AS INTEGER), sum(NOT known AND (input + output > 0 OR cost > 0)),
    sum(steps), sum(commands), sum(command_ms), sum(wall), count(*), sum(completed)
FROM (
    SELECT e.tenant, a.ended_at / 900000000000 AS step, e.agent, a.worker, a.model,
        coalesce(a.outcome ->> '$.usage.input_tokens', 0)       AS input,
        coalesce(a.outcome ->> '$.usage.cached_tokens', 0)      AS cached,
        coalesce(a.outcome ->> '$.usage.cache_write_tokens', 0) AS cache_write,
        coalesce(a.outcome ->> '$.usage.output_tokens', 0)      AS output,
        coalesce(a.outcome ->> '$.usage.reasoning_tokens', 0)   AS reasoning,
        coalesce(a.outcome ->> '$.usage.cost_usd', 0)           AS cost,
        coalesce(a.outcome ->> '$.usage.cost_known', 0)         AS known,
        coalesce(a.outcome ->> '$.usage.steps', 0)              AS steps,
        coalesce(a.outcome ->> '$.usage.commands', 0)           AS commands,
        coalesce(a.outcome ->> '$.usage.command_ms', 0)         AS command_ms,
        max(a.ended_at - a.started_at, 0)                       AS wall,
        e.exit_kind = 'succeeded' AND a.number = e.attempts     AS completed
    FROM attempts a JOIN entries e ON e.seq = a.entry
    WHERE a.outcome <> ''
)
GROUP BY tenant, step, agent, worker, model;
UPDATE attempts SET charged = 'early' WHERE outcome = '';
