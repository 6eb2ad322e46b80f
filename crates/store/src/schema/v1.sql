CREATE TABLE jobs (
    job INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    tenant TEXT NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    "end" TEXT,
    wall INTEGER NOT NULL
);
CREATE INDEX jobs_open ON jobs (job) WHERE "end" IS NULL;
CREATE INDEX jobs_ended ON jobs (job) WHERE "end" IS NOT NULL;
CREATE INDEX jobs_ended_of_user ON jobs (user, job) WHERE "end" IS NOT NULL;

CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    gpus INTEGER NOT NULL,
    launched INTEGER NOT NULL,
    ended INTEGER,
    price_per_hour REAL NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (job, attempt)
);
CREATE INDEX attempts_ended ON attempts (ended);

CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    user TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    wall INTEGER NOT NULL,
    UNIQUE (user, key)
);

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    wall INTEGER NOT NULL,
    kind TEXT NOT NULL,
    job INTEGER,
    user TEXT,
    data TEXT NOT NULL
);

CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    wall INTEGER NOT NULL,
    user TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    allowed INTEGER NOT NULL
);

CREATE TABLE meta (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL
);

CREATE TABLE tokens (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL,
    role TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER
);
