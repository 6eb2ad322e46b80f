//! The rim with a service that lives in memory: real sockets, real TLS, real requests.

mod access;
mod client;
mod dashboard;
mod doors;
mod input;
mod limits;
mod logs;
mod pace;
mod page;
mod schema;
mod service;
