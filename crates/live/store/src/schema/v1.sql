CREATE TABLE jobs (
    job INTEGER PRIMARY KEY CHECK (job BETWEEN 0 AND 4294967294),
    user TEXT NOT NULL,
    tenant TEXT NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    "end" TEXT,
    wall INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_open ON jobs (job) WHERE "end" IS NULL;
CREATE INDEX jobs_ended ON jobs (job) WHERE "end" IS NOT NULL;
CREATE INDEX jobs_ended_of_user ON jobs (user, job) WHERE "end" IS NOT NULL;

CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL CHECK (job BETWEEN 0 AND 4294967294),
    attempt INTEGER NOT NULL CHECK (attempt BETWEEN 0 AND 4294967295),
    gpus INTEGER NOT NULL CHECK (gpus BETWEEN 0 AND 4294967295),
    launched INTEGER NOT NULL,
    ended INTEGER,
    price_per_hour REAL NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (job, attempt)
) STRICT;
CREATE INDEX attempts_ended ON attempts (ended);

CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    wall INTEGER NOT NULL,
    UNIQUE (user, key)
) STRICT;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY CHECK (seq > 0),
    wall INTEGER NOT NULL,
    kind TEXT NOT NULL,
    job INTEGER CHECK (job BETWEEN 0 AND 4294967294),
    user TEXT,
    data TEXT NOT NULL
) STRICT;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    wall INTEGER NOT NULL,
    user TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    allowed INTEGER NOT NULL CHECK (allowed IN (0, 1))
) STRICT;

CREATE TABLE meta (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE tokens (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    role TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER
) STRICT;
