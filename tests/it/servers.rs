//! Real servers on the loopback, each with its own data directory, ended on drop.

pub mod certificates;
pub mod postgres;
#[cfg(feature = "postgres")]
pub mod proxy;
pub mod s3;

pub use postgres::Port;
