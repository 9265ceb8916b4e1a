-- On which node an attempt ran, and where the session lies that an entry goes on with; ''
-- is the scheduler's own host.
ALTER TABLE attempts ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE entries ADD COLUMN session_node TEXT NOT NULL DEFAULT '';
