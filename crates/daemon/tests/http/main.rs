//! The rim with a desk that lives in memory: real sockets, real TLS, real requests.

mod access;
mod client;
mod dashboard;
mod desk;
mod doors;
mod input;
mod limits;
mod logs;
mod pace;
mod page;
mod schema;
