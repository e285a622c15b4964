//! Behaviour of the `anabranch` binary, and of the service as a library: one binary, a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "one crate, shared by its modules")]

#[cfg(feature = "ai")]
mod ai;
mod analyze;
mod api;
mod api_apply;
mod api_contract;
mod api_edit;
mod api_lifecycle;
#[cfg(feature = "avro")]
mod api_schemas;
mod apply;
mod backlog;
mod bad_input;
mod branching;
#[cfg(feature = "postgres")]
mod cdc;
#[cfg(feature = "postgres")]
mod cluster;
mod commands;
#[cfg(any(feature = "kafka", feature = "postgres"))]
mod comparison;
mod completions;
#[cfg(all(feature = "grpc", target_os = "linux"))]
mod connectors;
mod constants;
mod control_plane;
mod copy;
mod crash;
#[cfg(unix)]
mod damage;
mod dead_letter;
mod demo;
mod dependencies;
mod destinations;
mod dev;
mod docs;
mod doctor;
#[cfg(all(feature = "http", feature = "js", feature = "postgres", feature = "s3"))]
mod documents;
mod doubts;
#[cfg(feature = "js")]
mod doubts_of_scripts;
mod drawing;
mod edits;
mod elsewhere;
mod examples;
mod failover;
mod fan_out;
mod fault_plan;
mod feeding;
mod files;
mod fix;
mod gallery;
mod generated;
mod help;
#[cfg(all(feature = "kafka", feature = "postgres"))]
mod history;
#[cfg(feature = "http")]
mod http;
mod inspect;
mod javascript;
#[cfg(feature = "kafka")]
mod kafka;
mod kills;
mod letters;
mod live;
mod mcp;
#[cfg(all(feature = "js", target_os = "linux"))]
mod mcp_calls;
mod migrate;
mod mistakes;
mod monitoring;
#[cfg(feature = "postgres")]
mod outage;
mod outcome;
mod packages;
#[cfg(feature = "parquet")]
mod parquet;
mod pipeline_tests;
mod plain_words;
mod plan;
mod positions;
#[cfg(feature = "postgres")]
mod postgres;
mod power;
mod process;
mod processors;

#[cfg(target_os = "linux")]
mod refused;
#[cfg(feature = "js")]
mod reloading;
mod rest;
#[cfg(any(feature = "kafka", feature = "postgres"))]
mod restarted;
#[cfg(feature = "postgres")]
mod rotation;
mod routing;
mod running;
mod s3;
mod schema;
#[cfg(feature = "avro")]
mod schema_registry;
#[cfg(all(feature = "js", target_os = "linux"))]
mod scripts;
mod sdk;
#[cfg(all(feature = "ai", feature = "http", feature = "postgres", feature = "s3"))]
mod secrets;
mod servers;
mod shaping;
#[cfg(feature = "singer")]
mod singer;
mod soak;
mod stop;
mod store;
#[cfg(feature = "postgres")]
mod store_copy;
mod strict;
#[cfg(unix)]
mod synthetic;
mod terminal;
mod tls;
mod tools;
#[cfg(all(feature = "http", feature = "traces"))]
mod traces;
mod ui;
mod upstream;
mod validate;
#[cfg(all(feature = "http", feature = "wasm"))]
mod vrl;
mod wasm;
#[cfg(feature = "http")]
mod webhook;
mod words;
