//! The source `singer`: a scripted tap, three taps that others wrote, and SIGKILL of the service and of taps.

mod discovery;
mod hidden;
mod killed;
mod real;
mod rude;
mod scripted;
mod sync;
