PRAGMA application_id = 1097290609; PRAGMA user_version = 9;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
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
    outcome       TEXT    NOT NULL DEFAULT '', charged TEXT NOT NULL DEFAULT '', node TEXT NOT NULL DEFAULT '', -- job.Outcome as JSON, '' while it runs
    PRIMARY KEY (entry, number)
) WITHOUT ROWID;
INSERT INTO "attempts" VALUES(1,1,1,'codex','m1','completed','s-1',1700000001000000000,1700000060000000000,0,'{"state":"completed","usage":{"input_tokens":300,"output_tokens":20,"cost_usd":0.25,"cost_known":true}}','','build-1');
INSERT INTO "attempts" VALUES(2,1,2,'claude','','failed','',1700000030000000000,1700000050000000000,1,'{"state":"failed","class":"CRASH","message":"the core died"}','','build-1');
INSERT INTO "attempts" VALUES(2,2,3,'codex','','failed','',1700000070000000000,1700000090000000000,0,'{"state":"failed","class":"AUTH","message":"log in"}','','');
INSERT INTO "attempts" VALUES(4,1,4,'shell','','running','',1700001001000000000,NULL,0,'','early','build-1');
CREATE TABLE batches (
    seq        INTEGER PRIMARY KEY, -- order of submission
    id         TEXT    NOT NULL UNIQUE,
    source     TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    closed_at  INTEGER
, private INTEGER NOT NULL DEFAULT 0, workflow TEXT NOT NULL DEFAULT '');
INSERT INTO "batches" VALUES(1,'first','/jobs.yaml','d1',1700000000000000000,1700000900000000000,1,'');
INSERT INTO "batches" VALUES(2,'second','','',1700001000000000000,NULL,1,'');
INSERT INTO "batches" VALUES(3,'shared','','',1700002000000000000,NULL,0,'{"caller":"host/9"}');
CREATE TABLE "entries" (
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
    superseded_by    TEXT    NOT NULL DEFAULT '', agent         TEXT NOT NULL DEFAULT '', error_class   TEXT NOT NULL DEFAULT '', requeued_from TEXT NOT NULL DEFAULT '', requeued_as   TEXT NOT NULL DEFAULT '', dropped_at    INTEGER, held   TEXT    NOT NULL DEFAULT '', joined INTEGER NOT NULL DEFAULT 0, worker TEXT NOT NULL DEFAULT '', session_node TEXT NOT NULL DEFAULT '',
    UNIQUE (batch, name, tenant)
);
INSERT INTO "entries" VALUES(1,'done',1,1,'web','build',0,'','completed','succeeded',1700000000000000000,1700000000000000000,NULL,1700000001000000000,1700000060000000000,'',1,NULL,0,1,1,'{"input_tokens":300,"output_tokens":20,"cost_usd":0.25,"cost_known":true}',59000000000,'s-1','codex','','','',0,'','','','','scout','','','',NULL,'',0,'codex','build-1');
INSERT INTO "entries" VALUES(2,'failed',1,1,'web','audit',0,'','completed','failed',1700000000000000000,1700000070000000000,NULL,1700000070000000000,1700000090000000000,'',3,NULL,1,2,1,'',30000000000,'','','look again','','AUTH: log in',0,'','','','','','AUTH','','',NULL,'',0,'claude','');
INSERT INTO "entries" VALUES(3,'cancelled',1,1,'web','docs',0,'','cancelled','',1700000000000000000,1700000000000000000,NULL,NULL,1700000100000000000,'',0,NULL,0,0,0,'',0,'','','','','',1,'','','','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(4,'runs',2,2,'shop','runs',2,'','dispatched','',1700001000000000000,1700001000000000000,NULL,1700001001000000000,NULL,'host/1',4,1700001031000000000,0,1,1,'',0,'','','','','',0,'','','','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(5,'waits',2,2,'shop','waits',0,'','queued','',1700001000000000000,1700001005000000000,NULL,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','it is not time yet','',0,'','','','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(6,'late',2,2,'shop','late',-1,'','queued','',1700001000000000000,1700001000000000000,1700001600000000000,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','','',0,'','','','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(7,'keyed',2,2,'shop','keyed',0,'interactive','queued','',1700001100000000000,1700001100000000000,NULL,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','','',0,'k','','','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(8,'same',2,2,'shop','same',0,'','queued','',1700001200000000000,1700001200000000000,NULL,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','','',0,'k','keyed','keyed','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(9,'older',2,2,'shop','older',0,'batch','cancelled','',1700001050000000000,1700001050000000000,NULL,NULL,1700001100000000000,'',0,NULL,0,0,0,'',0,'','','','','',0,'k','','','keyed','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(10,'free',3,0,'shop','free',0,'','queued','',1700002000000000000,1700002000000000000,NULL,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','','',0,'','','','','','','','',NULL,'',0,'shell','');
INSERT INTO "entries" VALUES(11,'dropped',3,0,'web','dropped',0,'','completed','failed',1700002000000000000,1700002000000000000,NULL,NULL,1700002100000000000,'',0,NULL,0,0,0,'',0,'','','','','LIMIT_EXCEEDED: too late',0,'','','','','scout','BUDGET','','',1700002200000000000,'',0,'codex','');
INSERT INTO "entries" VALUES(12,'needs',3,-3,'shop','needs',0,'','queued','',1700002000000000000,1700002000000000000,NULL,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','waits for free','',0,'','','','','','','','',NULL,'needs',1,'shell','');
CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY AUTOINCREMENT,
    entry   INTEGER NOT NULL REFERENCES entries (seq),
    attempt INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    body    TEXT    NOT NULL, -- job.Event as JSON
    UNIQUE (entry, attempt, seq)
);
INSERT INTO "events" VALUES(1,1,1,1,'{"job":"done","attempt":1,"seq":1,"time":"2023-11-14T22:13:21Z","kind":"text","text":"hello"}');
INSERT INTO "events" VALUES(2,1,1,2,'{"job":"done","attempt":1,"seq":2,"time":"2023-11-14T22:13:22Z","kind":"usage","usage":{"input_tokens":300,"output_tokens":20,"cost_usd":0.25,"cost_known":true}}');
INSERT INTO "events" VALUES(7,4,1,1,'{"job":"runs","attempt":1,"seq":1,"time":"2023-11-14T22:30:01Z","kind":"text","text":"asleep"}');
CREATE TABLE "fence" (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    last  INTEGER NOT NULL,           -- the number of the latest claim
    epoch INTEGER NOT NULL DEFAULT 0  -- see 0007
);
INSERT INTO "fence" VALUES(1,4,3);
CREATE TABLE flows (
    entry INTEGER PRIMARY KEY REFERENCES entries (seq),
    flow  TEXT NOT NULL -- JSON
);
INSERT INTO "flows" VALUES(12,'{"rejections":1}');
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
INSERT INTO "grants" VALUES('web','',0,100000,12.5,0,86400000000000);
INSERT INTO "grants" VALUES('web','scout',1,0,0.0,0,0);
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
INSERT INTO "ledger" VALUES('web',1888888,'','claude','',0,0,0,0,0,0,0,0,0,0,20000000000,1,0);
INSERT INTO "ledger" VALUES('web',1888888,'','codex','',0,0,0,0,0,0,0,0,0,0,20000000000,1,0);
INSERT INTO "ledger" VALUES('web',1888888,'scout','codex','m1',300,0,0,20,0,250000000,0,0,0,0,59000000000,1,1);
CREATE TABLE records (
    seq   INTEGER PRIMARY KEY,
    space TEXT    NOT NULL,
    key   TEXT    NOT NULL,
    value TEXT    NOT NULL, -- JSON
    at    INTEGER NOT NULL,
    UNIQUE (space, key)
);
INSERT INTO "records" VALUES(1,'job/done/steps','build','{"ok":true}',1700000050000000000);
CREATE TABLE specs (
    entry INTEGER PRIMARY KEY REFERENCES entries (seq),
    spec  TEXT NOT NULL -- job.Spec as JSON
);
INSERT INTO "specs" VALUES(1,'{"id":"build","tenant":"web","worker":"codex","agent":"scout","instructions":"Make it \u00e9legant."}');
INSERT INTO "specs" VALUES(2,'{"id":"audit","tenant":"web","worker":"claude","instructions":"Audit."}');
INSERT INTO "specs" VALUES(3,'{"id":"docs","tenant":"web","worker":"shell","instructions":"true"}');
INSERT INTO "specs" VALUES(4,'{"id":"runs","tenant":"shop","worker":"shell","priority":2,"instructions":"sleep 9"}');
INSERT INTO "specs" VALUES(5,'{"id":"waits","tenant":"shop","worker":"shell","instructions":"true"}');
INSERT INTO "specs" VALUES(6,'{"id":"late","tenant":"shop","worker":"shell","priority":-1,"instructions":"true"}');
INSERT INTO "specs" VALUES(7,'{"id":"keyed","tenant":"shop","worker":"shell","class":"interactive","key":"k","instructions":"true"}');
INSERT INTO "specs" VALUES(8,'{"id":"same","tenant":"shop","worker":"shell","key":"k","instructions":"true"}');
INSERT INTO "specs" VALUES(9,'{"id":"older","tenant":"shop","worker":"shell","class":"batch","key":"k","instructions":"true"}');
INSERT INTO "specs" VALUES(10,'{"id":"free","tenant":"shop","worker":"shell","instructions":"true"}');
INSERT INTO "specs" VALUES(11,'{"id":"dropped","tenant":"web","worker":"codex","agent":"scout","instructions":"true"}');
INSERT INTO "specs" VALUES(12,'{"id":"needs","tenant":"shop","worker":"shell","needs":["free"],"instructions":"true"}');
CREATE INDEX batches_source ON batches (source);
CREATE INDEX events_entry ON events (entry, cursor);
CREATE INDEX entries_lane ON entries (pool, tenant, priority, runnable_at, id, class) WHERE state = 'queued' AND waits_for = '';
CREATE UNIQUE INDEX entries_fence ON entries (fence) WHERE state = 'dispatched';
CREATE INDEX entries_line ON entries (tenant, key, coalesced_with, seq) WHERE key <> '' AND state IN ('queued', 'dispatched');
CREATE INDEX entries_waiting ON entries (waits_for, seq) WHERE waits_for <> '';
CREATE INDEX entries_waiting_pool ON entries (pool, tenant, key) WHERE waits_for <> '';
CREATE INDEX entries_coalesced ON entries (coalesced_with) WHERE coalesced_with <> '';
CREATE INDEX entries_superseded ON entries (superseded_by) WHERE superseded_by <> '';
CREATE INDEX entries_dead ON entries (completed_at)
    WHERE exit_kind = 'failed' AND requeued_as = '' AND dropped_at IS NULL;
CREATE INDEX entries_joined ON entries (batch) WHERE joined AND state IN ('queued', 'dispatched');
CREATE INDEX entries_deadline ON entries (pool, deadline) WHERE state = 'queued' AND deadline IS NOT NULL AND held <> 'approval';
CREATE INDEX entries_ended ON entries (completed_at, state, exit_kind) WHERE completed_at IS NOT NULL;
CREATE INDEX entries_done ON entries (state, tenant) WHERE completed_at IS NOT NULL;
CREATE INDEX entries_held ON entries (held, tenant) WHERE held <> '';
CREATE INDEX attempts_started ON attempts (started_at, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX attempts_ended ON attempts (ended_at, started_at) WHERE ended_at IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',7);
COMMIT;
