//! Patterns that map a plugin reference to a plugin.

use std::collections::BTreeMap;

use anabranch_plugin::registry::Registry;
use anabranch_plugin::specification::Specification;

/// A plugin in a role.
pub(super) struct KnownPlugin<'a> {
    pub(super) specification: &'a Specification,
    /// Name of the definition of its settings.
    pub(super) settings: String,
    /// Name used in pipeline files.
    pub(super) name: String,
    /// Pattern of the references to the plugin.
    pub(super) pattern: String,
}

/// Returns the plugins of a role: built-in plugins in registry order, then standalone plugins. A built-in plugin takes
/// precedence over a standalone one of the same name.
fn known<'a>(
    role: &'static str,
    builtin: impl Iterator<Item = &'a Specification>,
    standalone: impl Iterator<Item = &'a Specification>,
) -> Vec<KnownPlugin<'a>> {
    // The latest version of each name comes last.
    let mut files: BTreeMap<&str, Vec<&Specification>> = BTreeMap::new();
    for specification in standalone {
        files.entry(&specification.name).or_default().push(specification);
    }
    let mut all = Vec::new();
    for specification in builtin {
        let name = specification.name.as_str();
        let escaped = regex::escape(name);
        let pattern = match files.contains_key(name) {
            // A standalone plugin may be another version of it.
            true => format!("^((builtin|any):)?{escaped}(@latest)?$|^builtin:{escaped}@.+$"),
            false => format!("^((builtin|any):)?{escaped}(@.+)?$"),
        };
        all.push(KnownPlugin { specification, settings: format!("{role}.{name}"), name: name.to_owned(), pattern });
    }
    let mut number = 0;
    let names: Vec<String> = all.iter().map(|known| known.name.clone()).collect();
    for (name, versions) in files {
        let is_builtin = names.iter().any(|builtin| builtin == name);
        let prefix = if is_builtin { "standalone:" } else { "((standalone|any):)?" };
        let escaped = regex::escape(name);
        let last = versions.len() - 1;
        for (at, specification) in versions.into_iter().enumerate() {
            number += 1;
            let version = specification.version.trim_start_matches('v');
            let exact = regex::escape(version);
            let (shown, asked) = match (at == last, last) {
                (true, 0) => (String::new(), "(@.+)?".to_owned()),
                (true, _) => (String::new(), format!("(@latest|@v?{exact})?")),
                (false, _) => (format!("@{}", specification.version), format!("@v?{exact}")),
            };
            let before = if is_builtin { "standalone:" } else { "" };
            all.push(KnownPlugin {
                specification,
                // A plugin name may contain any character, so it is not used in the reference.
                settings: format!("{role}.file-{number}"),
                name: format!("{before}{name}{shown}"),
                pattern: format!("^{prefix}{escaped}{asked}$"),
            });
        }
    }
    all
}

/// Returns the source plugins.
pub(super) fn sources(registry: &Registry) -> Vec<KnownPlugin<'_>> {
    let files = registry.standalone_connectors().iter().filter_map(|connector| connector.source.as_ref());
    known("source", registry.sources().map(|k| k.specification()), files.map(|k| k.specification()))
}

/// Returns the destination plugins; with `letters`, including those that accept only dead letters.
pub(super) fn destinations(registry: &Registry, letters: bool) -> Vec<KnownPlugin<'_>> {
    let files = registry.standalone_connectors().iter().filter_map(|connector| connector.destination.as_ref());
    let builtin = registry.destinations().filter(|kind| letters || !kind.takes_only_letters());
    known("destination", builtin.map(|k| k.specification()), files.map(|k| k.specification()))
}

/// Returns the processor plugins.
pub(super) fn processors(registry: &Registry) -> Vec<KnownPlugin<'_>> {
    let files = registry.standalone_operators().iter();
    known("processor", registry.operators().map(|k| k.specification()), files.map(|k| k.specification()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &'static str, version: &str) -> Specification {
        let mut specification = Specification::builtin(name, "");
        specification.version = version.into();
        specification
    }

    #[test]
    fn a_text_names_one_plugin_at_most() {
        let builtin = [named("file", "v0.1.0"), named("log", "v0.1.0")];
        let files =
            [named("file", "v9.0.0"), named("my.own", "v1.0.0"), named("one", "(devel)"), named("my.own", "v2.0.0")];
        let known = known("source", builtin.iter(), files.iter());
        let meant = |text: &str| {
            let fits = |known: &&KnownPlugin<'_>| regex::Regex::new(&known.pattern).unwrap().is_match(text);
            let meant: Vec<_> = known.iter().filter(fits).map(|known| known.name.as_str()).collect();
            assert!(meant.len() < 2, "{text}: {meant:?}");
            meant.first().copied()
        };
        for (text, expected) in [
            ("file", Some("file")),
            ("any:file@latest", Some("file")),
            ("builtin:file@v0.1.0", Some("file")),
            ("file@v9.0.0", None),
            ("standalone:file@v9.0.0", Some("standalone:file")),
            ("log@1", Some("log")),
            ("standalone:log", None),
            ("my.own", Some("my.own")),
            ("any:my.own@latest", Some("my.own")),
            ("standalone:my.own@2.0.0", Some("my.own")),
            ("my.own@1.0.0", Some("my.own@v1.0.0")),
            ("builtin:my.own", None),
            ("my-own", None),
            ("one@(devel)", Some("one")),
        ] {
            assert_eq!(meant(text), expected, "{text}");
        }
        let mut settings: Vec<_> = known.iter().map(|known| &known.settings).collect();
        settings.dedup();
        assert_eq!(settings.len(), known.len());
    }
}
