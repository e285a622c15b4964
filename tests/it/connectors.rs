//! Connectors that are programs: a plugin that does as it is told, through the real service.

mod deleted;
mod discovery;
mod faults;
mod killed;
mod plugin;
mod talk;
