PRAGMA application_id = 1097290609; PRAGMA user_version = 1;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE batches (
    seq        INTEGER PRIMARY KEY, -- order of submission
    id         TEXT    NOT NULL UNIQUE,
    source     TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    closed_at  INTEGER
);
INSERT INTO batches VALUES(1,'first','/jobs.yaml','d1',1700000000000000000,1700000900000000000);
INSERT INTO batches VALUES(2,'second','','',1700001000000000000,NULL);
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
INSERT INTO entries VALUES(1,'done',1,'web','build',0,'completed','succeeded',1700000000000000000,1700000000000000000,NULL,1700000001000000000,1700000060000000000,'',1,NULL,0,1,1,'{"input_tokens":300,"output_tokens":20,"cost_usd":0.25,"cost_known":true}',59000000000,'s-1','codex','','','',0,'{"id":"build","tenant":"web","worker":"codex","agent":"scout","instructions":"Make it \u00e9legant."}');
INSERT INTO entries VALUES(2,'failed',1,'web','audit',0,'completed','failed',1700000000000000000,1700000070000000000,NULL,1700000070000000000,1700000090000000000,'',3,NULL,1,2,1,'',30000000000,'','','look again','','AUTH: log in',0,'{"id":"audit","tenant":"web","worker":"claude","instructions":"Audit."}');
INSERT INTO entries VALUES(3,'cancelled',1,'web','docs',0,'cancelled','',1700000000000000000,1700000000000000000,NULL,NULL,1700000100000000000,'',0,NULL,0,0,0,'',0,'','','','','',1,'{"id":"docs","tenant":"web","worker":"shell","instructions":"true"}');
INSERT INTO entries VALUES(4,'runs',2,'shop','runs',2,'dispatched','',1700001000000000000,1700001000000000000,NULL,1700001001000000000,NULL,'host/1',4,1700001031000000000,0,1,1,'',0,'','','','','',0,'{"id":"runs","tenant":"shop","worker":"shell","priority":2,"instructions":"sleep 9"}');
INSERT INTO entries VALUES(5,'waits',2,'shop','waits',0,'queued','',1700001000000000000,1700001005000000000,NULL,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','it is not time yet','',0,'{"id":"waits","tenant":"shop","worker":"shell","instructions":"true"}');
INSERT INTO entries VALUES(6,'late',2,'shop','late',-1,'queued','',1700001000000000000,1700001000000000000,1700001600000000000,NULL,NULL,'',0,NULL,0,0,0,'',0,'','','','','',0,'{"id":"late","tenant":"shop","worker":"shell","priority":-1,"instructions":"true"}');
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
INSERT INTO attempts VALUES(1,1,1,'codex','m1','completed','s-1',1700000001000000000,1700000060000000000,0,'{"state":"completed","usage":{"input_tokens":300,"output_tokens":20,"cost_usd":0.25,"cost_known":true}}');
INSERT INTO attempts VALUES(2,1,2,'claude','','failed','',1700000030000000000,1700000050000000000,1,'{"state":"failed","class":"CRASH","message":"the core died"}');
INSERT INTO attempts VALUES(2,2,3,'codex','','failed','',1700000070000000000,1700000090000000000,0,'{"state":"failed","class":"AUTH","message":"log in"}');
INSERT INTO attempts VALUES(4,1,4,'shell','','running','',1700001001000000000,NULL,0,'');
CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY AUTOINCREMENT,
    entry   INTEGER NOT NULL REFERENCES entries (seq),
    attempt INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    body    TEXT    NOT NULL, -- job.Event as JSON
    UNIQUE (entry, attempt, seq)
);
INSERT INTO events VALUES(1,1,1,1,'{"job":"done","attempt":1,"seq":1,"time":"2023-11-14T22:13:21Z","kind":"text","text":"hello"}');
INSERT INTO events VALUES(2,1,1,2,'{"job":"done","attempt":1,"seq":2,"time":"2023-11-14T22:13:22Z","kind":"usage","usage":{"input_tokens":300,"output_tokens":20,"cost_usd":0.25,"cost_known":true}}');
INSERT INTO events VALUES(7,4,1,1,'{"job":"runs","attempt":1,"seq":1,"time":"2023-11-14T22:30:01Z","kind":"text","text":"asleep"}');
CREATE TABLE fence (last INTEGER NOT NULL);
INSERT INTO fence VALUES(4);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('events',7);
CREATE INDEX batches_source ON batches (source);
CREATE INDEX entries_claim ON entries (priority DESC, runnable_at, id) WHERE state = 'queued';
CREATE INDEX entries_claim_batch ON entries (batch, priority DESC, runnable_at, id) WHERE state = 'queued';
CREATE INDEX entries_deadline ON entries (deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE INDEX entries_deadline_batch ON entries (batch, deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE UNIQUE INDEX entries_fence ON entries (fence) WHERE state = 'dispatched';
CREATE INDEX events_entry ON events (entry, cursor);
COMMIT;
