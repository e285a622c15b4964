//! Services that tests start for themselves.

pub mod s3;
