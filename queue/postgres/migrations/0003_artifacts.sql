-- Files that attempts left, such as patches: every scheduler of the queue can be asked for
-- them, also for those of a host that is gone.
CREATE TABLE artifacts (
    job     text    NOT NULL,
    attempt integer NOT NULL,
    name    text    NOT NULL,
    size    bigint  NOT NULL,
    PRIMARY KEY (job, attempt, name)
);

-- Each piece but the last has 512 KiB.
CREATE TABLE artifact_pieces (
    job     text    NOT NULL,
    attempt integer NOT NULL,
    name    text    NOT NULL,
    number  integer NOT NULL,
    data    bytea   NOT NULL,
    PRIMARY KEY (job, attempt, name, number),
    FOREIGN KEY (job, attempt, name) REFERENCES artifacts ON DELETE CASCADE
);
