//! Standalone plugins: plugins that are files of the user and not built into this program.

#[cfg(feature = "grpc")]
mod connectors;

#[cfg(any(feature = "grpc", feature = "wasm"))]
use std::path::PathBuf;

use anabranch_plugin::registry::{Plugin, Registry};
use anabranch_settings::{Database, Settings};

use crate::registered::{RegisterError, problems, registered, registry_of};
use crate::worker;

/// Returns a registry of every plugin of this build and the standalone plugins of the configured directories.
pub fn registry_with(settings: &Settings) -> Registry {
    with_plugins(settings, registered(), true)
}

/// Returns a registry as [`registry_with`] does, for a service inside another program: with `plugins` in place of the
/// plugins that this process registered. It contains standalone connectors if the program can run worker processes
/// ([`worker::is_program`]).
///
/// # Errors
/// All reasons why a plugin cannot be registered.
pub fn registry_inside(settings: &Settings, plugins: Vec<Plugin>) -> Result<Registry, Vec<RegisterError>> {
    let errors = problems(&plugins);
    match errors.is_empty() {
        true => Ok(with_plugins(settings, plugins.into_iter(), worker::memory(0).is_some())),
        false => Err(errors),
    }
}

fn with_plugins(settings: &Settings, plugins: impl Iterator<Item = Plugin>, has_connectors: bool) -> Registry {
    let mut registry = registry_of(worker::memory(settings.processors.max_memory), plugins);
    registry.reserve(&settings.config_path, "the configuration file of the service");
    registry.reserve(&settings.pipelines.path, "a pipeline file");
    if let Database::Embedded(path) = &settings.database {
        registry.reserve(path, "the state store of the service");
    }
    #[cfg(feature = "grpc")]
    if has_connectors {
        connectors::add(&mut registry, settings);
    }
    #[cfg(not(feature = "grpc"))]
    if has_connectors {
        registry.leave_out_standalone_connectors("full");
    }
    #[cfg(feature = "wasm")]
    web_assembly::add(&mut registry, settings);
    #[cfg(not(feature = "wasm"))]
    registry.leave_out_standalone_processors("full");
    registry
}

/// Returns the directory in which compiled and described plugins are cached for the next start.
#[cfg(any(feature = "grpc", feature = "wasm"))]
fn cache(of: &str) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(caches.join("anabranch").join(of))
}

#[cfg(feature = "wasm")]
mod web_assembly {
    use std::collections::BTreeSet;

    use anabranch_ops_wasm::{Ceiling, Compiling, Endpoint, LARGE, Limits, Options, load};
    use anabranch_plugin::registry::Registry;
    use anabranch_record::text::Str;

    use anabranch_settings::{EgressSettings, Settings};

    pub(super) fn add(registry: &mut Registry, settings: &Settings) {
        let processors = settings.processors.clone();
        let builtin: BTreeSet<Str> = registry.operators().map(|kind| kind.specification().name.clone()).collect();
        registry.set_standalone(move || {
            let options = Options {
                cache: super::cache("processors"),
                limits: Limits { time: processors.timeout, memory: processors.max_memory },
                ceiling: ceiling(&processors.egress),
            };
            let found = load(&processors.path, &options, &|compiling| match compiling {
                Compiling::Began { path, bytes } if bytes > LARGE => {
                    let megabytes = bytes as f64 / 1e6;
                    note(&format!("compiling {} ({megabytes:.1} MB) for its first start", path.display()));
                }
                Compiling::Ended { path, bytes, took } if bytes > LARGE => {
                    let took = took.as_secs_f64();
                    note(&format!(
                        "compiled {} in {took:.1} s; the result is cached for the next start",
                        path.display()
                    ));
                }
                Compiling::Began { .. } | Compiling::Ended { .. } => {}
            });
            for (path, reason) in &found.refused {
                note(&format!("warning: {} is not used: {reason}", path.display()));
            }
            for name in found.operators.iter().map(|kind| &kind.specification().name).filter(|n| builtin.contains(*n)) {
                note(&format!(
                    "warning: {name:?} means the built-in processor; to use the one in {}, write \"standalone:{name}\"",
                    processors.path.display()
                ));
            }
            let operators = found.operators;
            #[cfg(feature = "avro")]
            let operators = operators.into_iter().map(anabranch_ops_avro::guest::encoded).collect();
            operators
        });
    }

    /// Prints to standard error, because the log does not run yet.
    fn note(text: &str) {
        let _ = anabranch_process::terminal::print(anabranch_process::terminal::Stream::Err, &format!("{text}\n"));
    }

    /// Builds the egress limits. An entry that is not a host allows nothing.
    fn ceiling(settings: &EgressSettings) -> Ceiling {
        let place = |entry: &String| match Endpoint::parse(entry) {
            Ok(place) => Some(place),
            Err(error) => {
                note(&format!("warning: processors.egress.allow: {error}; the entry is ignored"));
                None
            }
        };
        Ceiling {
            enabled: settings.enabled,
            endpoints: (!settings.allow.is_empty()).then(|| settings.allow.iter().filter_map(place).collect()),
            secrets: (!settings.secret_refs.is_empty()).then(|| settings.secret_refs.clone()),
            timeout: settings.timeout,
            response_bytes: settings.max_response_bytes,
        }
    }
}
