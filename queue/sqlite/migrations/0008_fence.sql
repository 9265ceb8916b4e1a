-- With a primary key, without which SQLite's session extension sees no change of
-- a row, and so none would be told to another store.
CREATE TABLE fence_new (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    last  INTEGER NOT NULL,           -- the number of the latest claim
    epoch INTEGER NOT NULL DEFAULT 0  -- see 0007
);
INSERT INTO fence_new (id, last, epoch) SELECT 1, coalesce(max(last), 0), coalesce(max(epoch), 0) FROM fence;
DROP TABLE fence;
ALTER TABLE fence_new RENAME TO fence;
