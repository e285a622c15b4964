//! The built-in plugins.

use anabranch_plugin::registry::Registry;
use anabranch_record::code::Code;

/// Returns a registry of the built-in plugins. With `memory`, scripts run in processes of their own that may use that
/// many bytes each; with `None`, they run in this process.
pub(crate) fn builtin(memory: Option<usize>) -> Registry {
    let mut registry = Registry::new();
    anabranch_ops::register(&mut registry);
    families(&mut registry, memory);
    registry
}

/// Wraps all plugins that are registered so far with the handling of schemas. Plugins that are registered later handle
/// schemas themselves.
pub(crate) fn with_schemas(registry: &mut Registry) {
    #[cfg(feature = "avro")]
    {
        registry.wrap_operators(anabranch_ops_avro::around::around);
        registry.wrap_sources(anabranch_ops_avro::source::around);
        registry.wrap_destinations(anabranch_ops_avro::destination::around);
    }
    #[cfg(not(feature = "avro"))]
    let _ = registry;
}

/// Returns the codes of errors and findings that the plugins of this build declare.
pub fn codes() -> Vec<Code> {
    [
        anabranch_ops::codes::ALL,
        #[cfg(feature = "ai")]
        anabranch_ops_ai::codes::ALL,
        #[cfg(feature = "avro")]
        anabranch_ops_avro::codes::ALL,
        #[cfg(feature = "grpc")]
        anabranch_ops_grpc::codes::ALL,
        #[cfg(feature = "http")]
        anabranch_ops_http::codes::ALL,
        #[cfg(feature = "js")]
        anabranch_ops_js::codes::ALL,
        #[cfg(feature = "kafka")]
        anabranch_ops_kafka::codes::ALL,
        #[cfg(feature = "parquet")]
        anabranch_ops_parquet::codes::ALL,
        #[cfg(feature = "postgres")]
        anabranch_ops_postgres::codes::ALL,
        #[cfg(feature = "s3")]
        anabranch_ops_s3::codes::ALL,
        #[cfg(feature = "singer")]
        anabranch_ops_singer::codes::ALL,
        #[cfg(feature = "vrl")]
        anabranch_ops_vrl::codes::ALL,
        #[cfg(feature = "wasm")]
        anabranch_ops_wasm::codes::ALL,
    ]
    .concat()
}

/// Registers plugins with heavy dependencies, each behind a cargo feature. Plugins that are not built in are registered
/// as left out, so that an error about a missing plugin can name its feature.
#[cfg_attr(
    not(any(feature = "js", feature = "singer")),
    allow(unused_variables, reason = "only scripts and taps run in processes of their own")
)]
fn families(registry: &mut Registry, memory: Option<usize>) {
    #[cfg(feature = "ai")]
    anabranch_ops_ai::register(registry);
    #[cfg(feature = "avro")]
    anabranch_ops_avro::register(registry);
    #[cfg(feature = "http")]
    anabranch_ops_http::register(registry);
    #[cfg(feature = "js")]
    anabranch_ops_js::register(registry, memory.map(anabranch_ops_js::Launch::own));
    #[cfg(feature = "kafka")]
    anabranch_ops_kafka::register(registry);
    #[cfg(feature = "parquet")]
    anabranch_ops_parquet::register(registry);
    #[cfg(feature = "postgres")]
    anabranch_ops_postgres::register(registry);
    #[cfg(feature = "s3")]
    anabranch_ops_s3::register(registry);
    #[cfg(feature = "singer")]
    anabranch_ops_singer::register(registry, memory.map(|_| own_supervisor()));
    #[cfg(feature = "vrl")]
    anabranch_ops_vrl::register(registry);

    let left_out: &[(bool, &'static str, &[&'static str])] = &[
        (
            cfg!(feature = "ai"),
            "ai",
            &[
                "ai.chunk",
                "ai.embed",
                "cohere.command",
                "cohere.embed",
                "cohere.rerank",
                "ollama",
                "openai.embeddings",
                "openai.textgen",
            ],
        ),
        (cfg!(feature = "avro"), "avro", &["avro.decode", "avro.encode"]),
        (cfg!(feature = "http"), "http", &["webhook.http"]),
        (cfg!(feature = "js"), "js", &["custom.javascript"]),
        (cfg!(feature = "kafka"), "kafka", &["kafka"]),
        (cfg!(feature = "parquet"), "parquet", &["parquet.decode"]),
        (cfg!(feature = "postgres"), "postgres", &["postgres"]),
        (cfg!(feature = "s3"), "s3", &["s3"]),
        (cfg!(feature = "singer"), "singer", &["singer"]),
        (cfg!(feature = "vrl"), "vrl", &["vrl"]),
    ];
    for (built_in, feature, plugins) in left_out {
        for plugin in plugins.iter().filter(|_| !built_in) {
            registry.leave_out(plugin, feature);
        }
    }
}

/// Returns the program that supervises taps: this one.
#[cfg(feature = "singer")]
fn own_supervisor() -> Vec<std::ffi::OsString> {
    vec![anabranch_ops_program::supervise::own_program("anabranch")]
}
