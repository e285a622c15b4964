//! The plan compiler and the executor of Anabranch.
//!
//! Each pass is a pure function of the result of the pass before it, up to the one that runs the pipeline:
//!
//! 1. [`anabranch_config::load`] reads YAML into [`PipelineConfig`](anabranch_config::PipelineConfig), where every value
//!    has its place in the file.
//! 2. [`plan::compile`] resolves names against a [`Registry`](anabranch_plugin::registry::Registry), types the settings,
//!    lowers to a graph of nodes, checks and rewrites it (conditions become masks, dead branches are removed), and fuses
//!    it into stages.
//! 3. [`exec::start`] runs the stages as futures. Records flow down in strips; acknowledgement flows back as credit
//!    to the [`ack`] ledger of each source lane, whose watermark decides what is stored and acknowledged.
//!
//! This crate opens no file, socket or process. Sources, processors and destinations implement the contracts in
//! [`anabranch_plugin`]; a [`StateStore`](anabranch_plugin::state::StateStore) stores the marks. The crate
//! `anabranch-picture` draws plans.
//!
//! # Example
//!
//! A pipeline with in-memory connectors: ten rows, of which the odd ones are filtered.
//!
//! ```
//! use std::sync::Arc;
//!
//! use anabranch_graph::testing::{NoVariables, services};
//! use anabranch_graph::{exec, plan};
//! use anabranch_plugin::diagnostic::Files;
//! use anabranch_plugin::operator::{Configured, Decision};
//! use anabranch_plugin::registry::Registry;
//! use anabranch_plugin::testing::{self, AtEnd, Journal, MemoryStore, Downstream, Upstream};
//!
//! let mut files = Files::new();
//! files.add("numbers.yaml", r#"
//! version: "2.2"
//! pipelines:
//!   - id: evens
//!     connectors:
//!       - { id: numbers, type: source, plugin: numbers }
//!       - { id: shelf, type: destination, plugin: shelf }
//!     processors:
//!       - { id: odd, plugin: discard, condition: '{{ mod (printf "%s" .Payload.After) 2 }}' }
//!     dead-letter-queue: { plugin: shelf }
//! "#);
//! let journal = Journal::default();
//! let upstream = Arc::new(Upstream::new(&journal, 10, AtEnd::End));
//! let shelf = Arc::new(Downstream::new("shelf", &journal));
//! let discard: Configured = testing::inline(|_| Ok(Decision::Filter));
//! let mut registry = Registry::new();
//! testing::add_source(&mut registry, "numbers", &upstream);
//! testing::add_destination(&mut registry, "shelf", &shelf);
//! testing::add_operator(&mut registry, "discard", &discard);
//!
//! let loaded = anabranch_config::load(&files, &NoVariables);
//! let compiled = plan::compile(&loaded.pipelines[0], &registry, &plan::CompileOptions::default()).unwrap();
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! runtime.block_on(async {
//!     let services = services(&Arc::new(MemoryStore::new(&journal)));
//!     exec::start(compiled.stages, services, exec::RunOptions::default()).join().await
//! });
//! assert_eq!(shelf.rows(), [0, 2, 4, 6, 8]);
//! assert_eq!(upstream.kept(), 0, "every row was acknowledged");
//! ```

pub mod codes;
#[macro_use]
pub mod mutant;

pub mod ack;
pub mod batch;
pub mod exec;
pub mod plan;
mod sync;
pub mod testing;
