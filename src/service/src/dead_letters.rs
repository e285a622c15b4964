//! Dead letters of `store` queues: their representation for people and programs, and their replay.

pub mod filter;
pub mod replay;
pub mod view;
