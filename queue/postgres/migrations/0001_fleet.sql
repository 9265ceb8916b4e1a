-- What the schedulers of one queue share beside the queue's own tables, which are made
-- from the tables of queue/sqlite. Times are the database's.

-- id names this queue: a copy of another one is not taken for one of it. version is that
-- of the queue's tables, compatible the oldest layout whose programs may still work here.
CREATE TABLE meta (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    id         text    NOT NULL DEFAULT gen_random_uuid()::text,
    layout     integer NOT NULL,
    compatible integer NOT NULL,
    version    integer NOT NULL
);
INSERT INTO meta (layout, compatible, version) VALUES (0, 1, 0);

-- One row. The epoch is its key, so that a commit that has locked it FOR KEY SHARE ends
-- before another scheduler can take over, and one that comes later does not find it.
CREATE TABLE leader (
    epoch    bigint      PRIMARY KEY,
    holder   text        NOT NULL, -- members.instance
    since    timestamptz NOT NULL,
    renewed  timestamptz NOT NULL,
    lease    interval    NOT NULL,
    released boolean     NOT NULL,
    reason   text        NOT NULL  -- why it changed
);
INSERT INTO leader VALUES (0, '', clock_timestamp(), clock_timestamp(), '0', true, '');

-- The latest leaders.
CREATE TABLE terms (
    epoch  bigint      PRIMARY KEY,
    holder text        NOT NULL,
    since  timestamptz NOT NULL,
    reason text        NOT NULL
);

CREATE TABLE members (
    instance    text        PRIMARY KEY,
    host        text        NOT NULL,
    address     text        NOT NULL, -- where other members reach it
    fingerprint text        NOT NULL, -- SHA-256 of its certificate there
    version     text        NOT NULL,
    config      text        NOT NULL, -- a hash of its configuration
    started     timestamptz NOT NULL,
    seen        timestamptz NOT NULL
);

-- The feed: what each commit has changed, as SQLite's session extension tells it, each
-- patch behind its length. NULL: everything is to be read anew. The newest row stays,
-- the others while somebody may want them.
CREATE TABLE changes (
    revision bigint      PRIMARY KEY,
    epoch    bigint      NOT NULL,
    cursor   bigint      NOT NULL, -- the highest number given to an event
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    patch    bytea
);
ALTER TABLE changes ALTER COLUMN patch SET STORAGE EXTERNAL;
INSERT INTO changes (revision, epoch, cursor) VALUES (0, 0, 0);

CREATE SEQUENCE document_version;
CREATE TABLE documents (
    name    text        PRIMARY KEY,
    version bigint      NOT NULL DEFAULT nextval('document_version'),
    text    bytea       NOT NULL,
    changed timestamptz NOT NULL DEFAULT clock_timestamp()
);
