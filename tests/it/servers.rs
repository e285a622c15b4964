//! Real servers on the loopback, each with its own data directory, ended on drop.

pub mod certificates;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kafka")]
#[path = "servers/kafka/cluster.rs"]
pub mod kafka_cluster;
#[cfg(all(feature = "kafka", feature = "postgres"))]
#[path = "servers/kafka/witness.rs"]
pub mod kafka_witness;
#[cfg(feature = "singer")]
pub mod mariadb;
pub mod pgbouncer;
pub mod postgres;
#[cfg(feature = "postgres")]
pub mod proxy;
pub mod s3;

pub use postgres::Port;
