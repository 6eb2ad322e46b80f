//! The live state, simulated forward: when a job starts and ends, and what another policy would make of it.
