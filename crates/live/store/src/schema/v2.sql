-- Retention by age needs to know when a job ended, and numbers must not come back after a repair.
ALTER TABLE jobs ADD COLUMN ended INTEGER;
UPDATE jobs
SET ended = coalesce((SELECT max(ended) FROM attempts WHERE attempts.job = jobs.job), wall)
WHERE "end" IS NOT NULL;
CREATE INDEX jobs_ended_at ON jobs (ended) WHERE "end" IS NOT NULL;

CREATE TABLE floors (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    value INTEGER NOT NULL
) STRICT;
