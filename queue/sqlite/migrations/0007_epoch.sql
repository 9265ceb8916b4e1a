-- How often the store was opened for writing: a writer whose number is lower has
-- been deposed.
ALTER TABLE fence ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
