//! Plugins by name and role.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anabranch_record::near::did_you_mean;
use anabranch_record::text::Str;

use crate::destination::DestinationKind;
use crate::operator::OperatorKind;
use crate::source::SourceKind;

mod plugin;
mod standalone;

pub use plugin::Plugin;
pub use standalone::{DeletionNotice, StandaloneConnector};

/// Role of a connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads records.
    Source,
    /// Writes records.
    Destination,
}

/// All plugins that this binary can use.
#[derive(Clone, Default)]
pub struct Registry {
    connectors: Option<Arc<standalone::Standalone>>,
    sources: BTreeMap<Str, Arc<dyn SourceKind>>,
    operators: BTreeMap<Str, Arc<dyn OperatorKind>>,
    destinations: BTreeMap<Str, Arc<dyn DestinationKind>>,
    left_out: BTreeMap<&'static str, &'static str>,
    /// The cargo feature that would enable standalone connectors, if this build has none.
    connectors_left_out: Option<&'static str>,
    /// The cargo feature that would enable standalone processors, if this build has none.
    processors_left_out: Option<&'static str>,
    standalone: Option<Arc<Standalone>>,
    reserved: Vec<Reserved>,
}

/// A file of the service, or a directory of its pipeline files, that pipelines must not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The path.
    pub path: PathBuf,
    /// A description with an article.
    pub what: &'static str,
}

type Load = dyn Fn() -> Vec<Arc<dyn OperatorKind>> + Send + Sync;

/// Standalone processors, loaded when the first reference needs them, because loading may take long.
struct Standalone {
    load: Box<Load>,
    operators: OnceLock<Vec<Arc<dyn OperatorKind>>>,
}

impl Standalone {
    fn operators(&self) -> &[Arc<dyn OperatorKind>] {
        self.operators.get_or_init(|| (self.load)())
    }
}

/// Reason why a plugin reference cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No plugin has this name in any role.
    #[error("unknown plugin {name:?}")]
    Unknown {
        /// The name without prefix and version.
        name: Str,
        /// A similar name.
        near: Option<Str>,
    },
    /// The plugin exists, but only in other roles.
    #[error("plugin {name:?} cannot be used as {wanted}, only as {roles}")]
    WrongRole {
        /// The name.
        name: Str,
        /// The requested role.
        wanted: &'static str,
        /// The available roles.
        roles: String,
    },
    /// The plugin has another version.
    #[error("plugin {name:?} has version {found}, not {wanted}")]
    WrongVersion {
        /// The name.
        name: Str,
        /// The requested version.
        wanted: Str,
        /// The available version.
        found: Str,
    },
    /// The prefix is not `builtin:`, `standalone:` or `any:`.
    #[error("unknown plugin type {prefix:?}")]
    UnknownPrefix {
        /// The prefix.
        prefix: Str,
    },
    /// This binary was built without the plugin.
    #[error("plugin {name:?} is not part of this build; rebuild with --features {feature}")]
    LeftOut {
        /// The name.
        name: Str,
        /// The cargo feature that enables it.
        feature: &'static str,
    },
    /// No built-in plugin has this name, and this binary was built without standalone plugins of that role.
    #[error(
        "no built-in plugin is called {name:?}, and standalone plugins are not part of this build; rebuild with --features {feature}"
    )]
    StandaloneLeftOut {
        /// The name.
        name: Str,
        /// The cargo feature that enables them.
        feature: &'static str,
    },
    /// No standalone plugin with this name is installed.
    #[error("no standalone plugin {name:?} is installed")]
    NotInstalled {
        /// The name.
        name: Str,
    },
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Adds a source under the name in its specification.
    pub fn add_source(&mut self, kind: Arc<dyn SourceKind>) {
        self.sources.insert(kind.specification().name.clone(), kind);
    }

    /// Adds a processor.
    pub fn add_operator(&mut self, kind: Arc<dyn OperatorKind>) {
        self.operators.insert(kind.specification().name.clone(), kind);
    }

    /// Adds a plugin of any role under the name in its specification. It replaces a plugin with that name and role.
    pub fn add(&mut self, plugin: Plugin) {
        match plugin {
            Plugin::Source(kind) => self.add_source(kind),
            Plugin::Processor(kind) => self.add_operator(kind),
            Plugin::Destination(kind) => self.add_destination(kind),
        }
    }

    /// Returns `true` if a plugin with the name and the role of `plugin` was added.
    pub fn has(&self, plugin: &Plugin) -> bool {
        let name = &plugin.specification().name;
        match plugin {
            Plugin::Source(_) => self.sources.contains_key(name),
            Plugin::Processor(_) => self.operators.contains_key(name),
            Plugin::Destination(_) => self.destinations.contains_key(name),
        }
    }

    /// Wraps all processors that are registered so far.
    pub fn wrap_operators(&mut self, wrap: impl Fn(Arc<dyn OperatorKind>) -> Arc<dyn OperatorKind>) {
        self.operators.values_mut().for_each(|kind| *kind = wrap(kind.clone()));
    }

    /// Wraps all sources that are registered so far.
    pub fn wrap_sources(&mut self, wrap: impl Fn(Arc<dyn SourceKind>) -> Arc<dyn SourceKind>) {
        self.sources.values_mut().for_each(|kind| *kind = wrap(kind.clone()));
    }

    /// Wraps all destinations that are registered so far.
    pub fn wrap_destinations(&mut self, wrap: impl Fn(Arc<dyn DestinationKind>) -> Arc<dyn DestinationKind>) {
        self.destinations.values_mut().for_each(|kind| *kind = wrap(kind.clone()));
    }

    /// Adds a destination.
    pub fn add_destination(&mut self, kind: Arc<dyn DestinationKind>) {
        self.destinations.insert(kind.specification().name.clone(), kind);
    }

    /// Sets the loader of standalone connectors. `load` is called once, when a reference does not match a built-in
    /// connector. It returns older versions of a name before newer ones.
    pub fn set_standalone_connectors(&mut self, load: impl Fn() -> Vec<StandaloneConnector> + Send + Sync + 'static) {
        self.connectors = Some(Arc::new(standalone::Standalone::new(load)));
    }

    /// Returns all standalone connectors, older versions of a name first. May call the loader.
    pub fn standalone_connectors(&self) -> &[StandaloneConnector] {
        self.connectors.as_deref().map_or(&[], standalone::Standalone::connectors)
    }

    /// Returns the standalone connector whose plugin stored `active`, in the version that `reference` requests if that
    /// version is available. May call the loader.
    pub fn of_active(&self, reference: &str, active: &[u8]) -> Option<&StandaloneConnector> {
        self.connectors.as_deref()?.of_active(reference, active)
    }

    /// Reserves a file of the service, so that no pipeline may write it; for a directory, the pipeline files in it.
    pub fn reserve(&mut self, path: impl Into<PathBuf>, what: &'static str) {
        self.reserved.push(Reserved { path: path.into(), what });
    }

    /// Returns the files that pipelines must not write.
    pub fn reserved(&self) -> &[Reserved] {
        &self.reserved
    }

    /// Registers the name of a plugin that a cargo feature excludes.
    pub fn leave_out(&mut self, name: &'static str, feature: &'static str) {
        self.left_out.insert(name, feature);
    }

    /// Registers that a cargo feature excludes standalone connectors.
    pub fn leave_out_standalone_connectors(&mut self, feature: &'static str) {
        self.connectors_left_out = Some(feature);
    }

    /// Registers that a cargo feature excludes standalone processors.
    pub fn leave_out_standalone_processors(&mut self, feature: &'static str) {
        self.processors_left_out = Some(feature);
    }

    /// Sets the loader of standalone processors. `load` is called once, when a reference does not match a built-in
    /// processor. It returns older versions of a name before newer ones.
    pub fn set_standalone(&mut self, load: impl Fn() -> Vec<Arc<dyn OperatorKind>> + Send + Sync + 'static) {
        self.standalone = Some(Arc::new(Standalone { load: Box::new(load), operators: OnceLock::new() }));
    }

    /// Returns all standalone processors, older versions first. May call the loader.
    pub fn standalone_operators(&self) -> &[Arc<dyn OperatorKind>] {
        self.standalone.as_deref().map_or(&[], Standalone::operators)
    }

    /// Returns `true` if resolving a reference requires loading the standalone processors, which may take long.
    pub fn has_to_load(&self, reference: &str) -> bool {
        let unloaded = self.standalone.as_deref().is_some_and(|standalone| standalone.operators.get().is_none());
        let builtin = || {
            self.resolve(reference, "a processor", &self.operators, self.processors_left_out, |k| {
                k.specification().version.clone()
            })
        };
        unloaded
            && !reference.starts_with("builtin:")
            && builtin().is_err_and(|error| !matches!(error, ResolveError::UnknownPrefix { .. }))
    }

    /// Returns all sources in name order.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<dyn SourceKind>> {
        self.sources.values()
    }

    /// Returns all processors in name order.
    pub fn operators(&self) -> impl Iterator<Item = &Arc<dyn OperatorKind>> {
        self.operators.values()
    }

    /// Returns all destinations in name order.
    pub fn destinations(&self) -> impl Iterator<Item = &Arc<dyn DestinationKind>> {
        self.destinations.values()
    }

    /// Returns the source for a reference.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn source(&self, reference: &str) -> Result<&Arc<dyn SourceKind>, ResolveError> {
        const ROLE: &str = "a source";
        let builtin = self
            .resolve(reference, ROLE, &self.sources, self.connectors_left_out, |k| k.specification().version.clone());
        builtin.or_else(|error| self.or_standalone(reference, ROLE, error, |found| found.source.as_ref()))
    }

    /// Returns the processor for a reference: a built-in one, otherwise a standalone one.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn operator(&self, reference: &str) -> Result<&Arc<dyn OperatorKind>, ResolveError> {
        let builtin = self.resolve(reference, "a processor", &self.operators, self.processors_left_out, |k| {
            k.specification().version.clone()
        });
        let error = match builtin {
            Err(error) if !matches!(error, ResolveError::UnknownPrefix { .. }) => error,
            found => return found,
        };
        match (self.standalone_operator(reference), error) {
            (Some(Ok(found)), _) => Ok(found),
            (Some(Err(error)), ResolveError::Unknown { .. } | ResolveError::NotInstalled { .. }) => Err(error),
            (None, ResolveError::Unknown { name, near: None }) if !reference.starts_with("builtin:") => {
                let names = self.standalone_operators().iter().map(|kind| kind.specification().name.as_str());
                let near = did_you_mean(&name, names).map(Str::from);
                Err(ResolveError::Unknown { name, near })
            }
            (_, error) => Err(error),
        }
    }

    /// Returns the destination for a reference.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn destination(&self, reference: &str) -> Result<&Arc<dyn DestinationKind>, ResolveError> {
        const ROLE: &str = "a destination";
        let builtin = self.resolve(reference, ROLE, &self.destinations, self.connectors_left_out, |k| {
            k.specification().version.clone()
        });
        builtin.or_else(|error| self.or_standalone(reference, ROLE, error, |found| found.destination.as_ref()))
    }

    /// Returns the destination for a reference, except destinations that accept only dead letters.
    ///
    /// # Errors
    /// The errors of [`Registry::destination`].
    pub fn destination_of_records(&self, reference: &str) -> Result<&Arc<dyn DestinationKind>, ResolveError> {
        let kind = self.destination(reference)?;
        if kind.takes_only_letters() {
            let name = kind.specification().name.clone();
            let roles = "a dead-letter queue".to_owned();
            return Err(ResolveError::WrongRole { name, wanted: "a destination", roles });
        }
        Ok(kind)
    }

    /// Returns the standalone connector for a reference that no built-in connector matches. An error concerns the
    /// built-in connector, unless only the standalone one has the name.
    fn or_standalone<'a, K: ?Sized>(
        &'a self,
        reference: &str,
        wanted: &'static str,
        error: ResolveError,
        role: impl Fn(&'a StandaloneConnector) -> Option<&'a Arc<K>>,
    ) -> Result<&'a Arc<K>, ResolveError> {
        let unknown = matches!(error, ResolveError::Unknown { .. } | ResolveError::NotInstalled { .. });
        match self.connectors.as_deref().and_then(|standalone| standalone.resolve(reference, wanted, role)) {
            Some(Ok(kind)) => Ok(kind),
            Some(Err(other)) if unknown => Err(other),
            _ => Err(error),
        }
    }

    /// Returns the standalone processor for a reference. `None` if the reference cannot mean one or no processor has
    /// the name; an inner error if it does not have the requested version.
    fn standalone_operator(&self, reference: &str) -> Option<Result<&Arc<dyn OperatorKind>, ResolveError>> {
        let (prefix, rest) = reference.split_once(':').unwrap_or(("any", reference));
        if prefix == "builtin" {
            return None;
        }
        let (name, asked) = rest.split_once('@').unwrap_or((rest, "latest"));
        let versions = || self.standalone_operators().iter().filter(|kind| kind.specification().name == *name);
        let latest = versions().next_back()?;
        if asked == "latest" {
            return Some(Ok(latest));
        }
        let version = |kind: &dyn OperatorKind| kind.specification().version.clone();
        let found = versions().find(|kind| version(&***kind).trim_start_matches('v') == asked.trim_start_matches('v'));
        Some(found.ok_or_else(|| ResolveError::WrongVersion {
            name: name.into(),
            wanted: asked.into(),
            found: versions().map(|kind| version(&**kind).to_string()).collect::<Vec<_>>().join(", ").into(),
        }))
    }

    fn roles(&self, name: &str) -> Vec<&'static str> {
        let mut roles = Vec::new();
        roles.extend(self.sources.contains_key(name).then_some("a source"));
        roles.extend(self.operators.contains_key(name).then_some("a processor"));
        roles.extend(self.destinations.contains_key(name).then_some("a destination"));
        roles
    }

    fn resolve<'a, K: ?Sized>(
        &self,
        reference: &str,
        wanted: &'static str,
        kinds: &'a BTreeMap<Str, Arc<K>>,
        standalone_left_out: Option<&'static str>,
        version: impl Fn(&K) -> Str,
    ) -> Result<&'a Arc<K>, ResolveError> {
        let (prefix, rest) = reference.split_once(':').unwrap_or(("any", reference));
        let (name, asked) = rest.split_once('@').unwrap_or((rest, "latest"));
        match prefix {
            "any" | "builtin" => {}
            "standalone" => {
                let name = name.into();
                return Err(match standalone_left_out {
                    Some(feature) => ResolveError::StandaloneLeftOut { name, feature },
                    None => ResolveError::NotInstalled { name },
                });
            }
            _ => return Err(ResolveError::UnknownPrefix { prefix: prefix.into() }),
        }
        let Some(kind) = kinds.get(name) else {
            let roles = self.roles(name);
            return Err(if !roles.is_empty() {
                ResolveError::WrongRole { name: name.into(), wanted, roles: roles.join(" or ") }
            } else if let Some(feature) = self.left_out.get(name) {
                ResolveError::LeftOut { name: name.into(), feature }
            } else {
                let near = did_you_mean(name, kinds.keys().map(Str::as_str)).map(Str::from);
                let name = name.into();
                match standalone_left_out {
                    Some(feature) if near.is_none() && prefix == "any" => {
                        ResolveError::StandaloneLeftOut { name, feature }
                    }
                    _ => ResolveError::Unknown { name, near },
                }
            });
        };
        let found = version(kind);
        if asked != "latest" && asked.trim_start_matches('v') != found.trim_start_matches('v') {
            return Err(ResolveError::WrongVersion { name: name.into(), wanted: asked.into(), found });
        }
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use crate::diagnostic::Diagnostics;
    use crate::operator::Configured;
    use crate::specification::Specification;

    struct Named(Specification);

    impl OperatorKind for Named {
        fn specification(&self) -> &Specification {
            &self.0
        }

        fn configure(&self, _: &Arguments) -> Result<Configured, Diagnostics> {
            unreachable!()
        }
    }

    fn registry() -> Registry {
        let mut registry = Registry::new();
        let mut specification = Specification::builtin("field.set", "Sets a field.");
        specification.version = "v1.2.0".into();
        registry.add_operator(Arc::new(Named(specification)));
        registry.leave_out("custom.javascript", "js");
        registry
    }

    fn error(reference: &str) -> String {
        registry().operator(reference).map_or_else(|e| e.to_string(), |_| String::new())
    }

    struct Reads(Specification);

    impl SourceKind for Reads {
        fn specification(&self) -> &Specification {
            &self.0
        }

        fn configure(&self, _: &Arguments) -> Result<Arc<dyn crate::source::Source>, Diagnostics> {
            unreachable!()
        }
    }

    #[test]
    fn standalone_connectors_are_looked_for_where_no_built_in_one_fits() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let source = |name: &'static str, version: &str| -> Arc<dyn SourceKind> {
            let mut specification = Specification::builtin(name, "");
            specification.version = version.into();
            Arc::new(Reads(specification))
        };
        let mut registry = registry();
        registry.add_source(source("file", "v0.1.0"));
        let loads = Arc::new(AtomicUsize::new(0));
        let counted = loads.clone();
        registry.set_standalone_connectors(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            [("file", "v9.0.0"), ("mine", "v1.9.0"), ("mine", "v1.10.0")]
                .map(|(name, version)| StandaloneConnector {
                    source: Some(source(name, version)),
                    destination: None,
                    farewell: None,
                })
                .into()
        });
        let version = |reference: &str| match registry.source(reference) {
            Ok(kind) => kind.specification().version.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(version("file"), "v0.1.0");
        assert_eq!(loads.load(Ordering::Relaxed), 0);
        assert_eq!(version("standalone:file"), "v9.0.0");
        assert_eq!(version("file@9.0.0"), "v9.0.0");
        assert_eq!(version("builtin:file@9.0.0"), "plugin \"file\" has version v0.1.0, not 9.0.0");
        assert_eq!(version("mine"), "v1.10.0");
        assert_eq!(version("standalone:mine@v1.9.0"), "v1.9.0");
        assert_eq!(version("mine@v2"), "plugin \"mine\" has version v1.9.0, v1.10.0, not v2");
        assert_eq!(version("standalone:other"), "no standalone plugin \"other\" is installed");
        let wrong = registry.destination("mine").map(|_| ()).unwrap_err();
        assert_eq!(wrong.to_string(), "plugin \"mine\" cannot be used as a destination, only as a source");
        assert_eq!(loads.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn standalone_processors_are_loaded_when_one_is_asked_for() {
        let mut registry = registry();
        let loads = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = loads.clone();
        registry.set_standalone(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let kind = |name, version: &str| -> Arc<dyn OperatorKind> {
                let mut specification = Specification::builtin(name, "");
                specification.version = version.into();
                Arc::new(Named(specification))
            };
            vec![kind("field.set", "v9"), kind("mine", "v1.9.0"), kind("mine", "v1.10.0")]
        });
        let version =
            |reference: &str| registry.operator(reference).map(|kind| kind.specification().version.to_string());
        assert_eq!(version("field.set").unwrap(), "v1.2.0");
        for (reference, loads) in
            [("field.set", false), ("nope:x", false), ("mine", true), ("standalone:field.set", true)]
        {
            assert_eq!(registry.has_to_load(reference), loads, "{reference}");
        }
        assert_eq!(version("builtin:field.sit").unwrap_err().to_string(), "unknown plugin \"field.sit\"");
        assert_eq!(loads.load(std::sync::atomic::Ordering::Relaxed), 0);
        assert_eq!(version("standalone:field.set").unwrap(), "v9");
        assert_eq!(version("field.set@v9").unwrap(), "v9");
        assert!(!registry.has_to_load("mine"));
        assert!(matches!(version("field.set@v8"), Err(ResolveError::WrongVersion { found, .. }) if found == "v1.2.0"));
        assert!(matches!(version("minx"), Err(ResolveError::Unknown { near: Some(near), .. }) if near == "mine"));
        assert_eq!(version("mine").unwrap(), "v1.10.0");
        assert_eq!(version("standalone:mine@1.9.0").unwrap(), "v1.9.0");
        let error = version("mine@v2").unwrap_err().to_string();
        assert_eq!(error, "plugin \"mine\" has version v1.9.0, v1.10.0, not v2");
        assert!(version("builtin:mine").is_err());
        assert_eq!(loads.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[test]
    fn references_have_a_type_a_name_and_a_version() {
        for reference in
            ["field.set", "builtin:field.set", "any:field.set@latest", "field.set@v1.2.0", "builtin:field.set@1.2.0"]
        {
            assert_eq!(error(reference), "", "{reference}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_reference_is_said() {
        assert_eq!(error("field.sett"), "unknown plugin \"field.sett\"");
        assert_eq!(error("field.set@v1"), "plugin \"field.set\" has version v1.2.0, not v1");
        assert_eq!(error("standalone:field.set"), "no standalone plugin \"field.set\" is installed");
        assert_eq!(error("grpc:field.set"), "unknown plugin type \"grpc\"");
        assert_eq!(
            error("custom.javascript"),
            "plugin \"custom.javascript\" is not part of this build; rebuild with --features js"
        );
        let mut registry_without = registry();
        registry_without.leave_out_standalone_processors("wasm");
        for reference in ["mine", "standalone:mine"] {
            assert_eq!(
                registry_without.operator(reference).map(|_| ()).unwrap_err().to_string(),
                "no built-in plugin is called \"mine\", and standalone plugins are not part of this build; rebuild with \
                 --features wasm"
            );
        }
        let wrong = registry().source("field.set").map(|_| ()).unwrap_err();
        assert_eq!(wrong.to_string(), "plugin \"field.set\" cannot be used as a source, only as a processor");
        let near = registry().operator("field.sett").map(|_| ()).unwrap_err();
        assert_eq!(near, ResolveError::Unknown { name: "field.sett".into(), near: Some("field.set".into()) });
    }
}
