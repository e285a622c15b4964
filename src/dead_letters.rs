//! Dead letters of `store` queues: what people and programs see of them, and replaying them.

pub mod filter;
pub mod form;
pub mod replay;
pub mod view;
