//! The plugins of this process: the built-in ones, and those that the program adds.

use std::sync::OnceLock;

use anabranch_plugin::registry::{Plugin, Registry};
use anabranch_record::text::Str;

use crate::builtin::{builtin, with_schemas};

/// The plugins of this process, from its start on.
static REGISTERED: OnceLock<Vec<Plugin>> = OnceLock::new();

/// Reason why a plugin cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// A built-in plugin has the name and the role.
    #[error("the {role} {name:?} has the name of a built-in {role}")]
    BuiltIn {
        /// The role.
        role: &'static str,
        /// The name.
        name: Str,
    },
    /// Another registered plugin has the name and the role.
    #[error("the {role} {name:?} is registered twice")]
    Twice {
        /// The role.
        role: &'static str,
        /// The name.
        name: Str,
    },
    /// A pipeline file cannot refer to the name.
    #[error("{name:?} cannot be the name of a {role}: it must consist of ASCII letters, digits, `.`, `-` and `_`")]
    Name {
        /// The role.
        role: &'static str,
        /// The name.
        name: Str,
    },
    /// This process has its plugins already.
    #[error("the plugins of this process are registered already")]
    Already,
}

/// Adds plugins to those of all registries of this process. Call it once, before the first registry.
///
/// # Errors
/// All reasons why a plugin cannot be registered; then none is.
pub fn register(plugins: Vec<Plugin>) -> Result<(), Vec<RegisterError>> {
    let errors = problems(&plugins);
    if !errors.is_empty() {
        return Err(errors);
    }
    REGISTERED.set(plugins).map_err(|_| vec![RegisterError::Already])
}

/// Returns a registry of every plugin of this process, to describe and configure them. Commands that run pipelines use
/// [`registry_with`](crate::registry_with).
pub fn registry() -> Registry {
    registry_of(None, registered())
}

/// Returns the plugins that this process registered.
pub(crate) fn registered() -> impl Iterator<Item = Plugin> {
    REGISTERED.get().into_iter().flatten().cloned()
}

/// Returns a registry of the built-in plugins and `plugins`. With `memory`, scripts run in processes of their own that may
/// use this many bytes each; with `None`, they run in this process.
pub(crate) fn registry_of(memory: Option<usize>, plugins: impl Iterator<Item = Plugin>) -> Registry {
    let mut registry = builtin(memory);
    plugins.for_each(|plugin| registry.add(plugin));
    with_schemas(&mut registry);
    registry
}

/// Returns why plugins cannot be registered next to the built-in ones.
pub(crate) fn problems(plugins: &[Plugin]) -> Vec<RegisterError> {
    if plugins.is_empty() {
        return Vec::new();
    }
    let builtin = builtin(None);
    let (mut registered, mut errors) = (Registry::new(), Vec::new());
    for plugin in plugins {
        let (role, name) = (plugin.role(), plugin.specification().name.clone());
        let is_valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
        if !is_valid {
            errors.push(RegisterError::Name { role, name });
        } else if builtin.has(plugin) {
            errors.push(RegisterError::BuiltIn { role, name });
        } else if registered.has(plugin) {
            errors.push(RegisterError::Twice { role, name });
        } else {
            registered.add(plugin.clone());
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::kind;
    use anabranch_plugin::specification::Specification;

    use super::*;

    fn source(name: &'static str) -> Plugin {
        let specification = Specification::new(name, "1.0.0", "Reads nothing.");
        kind::source(specification, |()| unreachable!()).into()
    }

    fn destination(name: &'static str) -> Plugin {
        let specification = Specification::new(name, "1.0.0", "Writes nothing.");
        kind::destination(specification, |()| unreachable!()).into()
    }

    fn messages(plugins: &[Plugin]) -> Vec<String> {
        problems(plugins).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_belongs_to_one_plugin_of_a_role() {
        assert_eq!(messages(&[source("inbox"), destination("inbox"), source("log")]), [] as [&str; 0]);
        assert_eq!(
            messages(&[source("inbox"), source("file"), source("inbox"), source("inbox"), destination("log")]),
            [
                "the source \"file\" has the name of a built-in source",
                "the source \"inbox\" is registered twice",
                "the source \"inbox\" is registered twice",
                "the destination \"log\" has the name of a built-in destination",
            ]
        );
    }

    #[test]
    fn pipelines_can_refer_to_every_name() {
        for name in ["", "my inbox", "my:inbox", "inbox@2", "bo\u{ee}te"] {
            let [RegisterError::Name { role: "source", .. }] = problems(&[source(name)])[..] else { panic!("{name}") };
        }
        assert_eq!(messages(&[source("my-inbox_2.files")]), [] as [&str; 0]);
    }

    #[test]
    fn registered_plugins_are_in_every_registry_of_the_process() {
        assert!(crate::registry().source("registered").is_err());
        register(vec![source("registered")]).unwrap();
        assert!(crate::registry().source("registered").is_ok());
        assert_eq!(register(vec![source("other")]), Err(vec![RegisterError::Already]));
    }
}
