//! A source, a processor and a destination.

pub mod codes;
pub mod inbox;
pub mod mask;
pub mod outbox;
