//! A source, a processor and a destination.

pub mod inbox;
pub mod mask;
pub mod outbox;
