//! The page that the daemon serves: files embedded in the program, without a build step.
