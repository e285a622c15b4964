//! Standalone connectors: programs in a directory.

use std::sync::Arc;

use anabranch_ops_grpc as grpc;
use anabranch_ops_program::supervise;
use anabranch_plugin::registry::Registry;
#[cfg(feature = "avro")]
use anabranch_plugin::registry::StandaloneConnector;
use anabranch_settings::Settings;

/// Registers the directory of standalone connectors. It is searched when a reference first needs one.
pub(super) fn add(registry: &mut Registry, settings: &Settings) {
    let found = Arc::new(grpc::Settings {
        directory: settings.connectors.path.clone(),
        cache: super::cache("connectors"),
        supervisor: vec![supervise::own_program("anabranch")],
        record_limit: settings.connectors.record_limit,
        patience: settings.connectors.timeout,
        equal_refusals: settings.connectors.equal_refusals,
        log_level: settings.log.level,
    });
    let builtin: Vec<String> = registry
        .sources()
        .map(|kind| kind.specification())
        .chain(registry.destinations().map(|kind| kind.specification()))
        .map(|specification| specification.name.to_string())
        .collect();
    registry.set_standalone_connectors(move || {
        let grpc::Discovered { connectors, refused } = grpc::load(&found);
        #[cfg(feature = "avro")]
        let connectors: Vec<_> = connectors.into_iter().map(encoded).collect();
        let warn = |text: String| {
            // The result is ignored: standard error may be closed.
            let _ = anabranch_process::terminal::print(
                anabranch_process::terminal::Stream::Err,
                &format!("warning: {text}\n"),
            );
        };
        for (path, reason) in refused {
            warn(format!("{} is not used: {reason}", path.display()));
        }
        for specification in connectors.iter().filter_map(|connector| connector.specification()) {
            let name = &specification.name;
            if builtin.iter().any(|builtin| *name == **builtin) {
                warn(format!(
                    "connector {name} is both built in and installed: `{name}` means the built-in connector in the \
                     roles that it has, `standalone:{name}` means the installed one"
                ));
            }
        }
        connectors
    });
}

/// Encodes the data for destinations that decode it themselves.
#[cfg(feature = "avro")]
fn encoded(mut connector: StandaloneConnector) -> StandaloneConnector {
    connector.destination = connector.destination.map(anabranch_ops_avro::destination::encoded);
    connector
}
