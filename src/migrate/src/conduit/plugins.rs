//! Plugins that the pipelines of Conduit name.

use anabranch_config::bare_name;
use anabranch_plugin::registry::{Registry, ResolveError, Role};
use anabranch_record::specification::Specification;

/// The role in which a pipeline uses a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsedAs {
    Connector(Role),
    Processor,
}

/// The plugin that a reference means.
#[derive(Debug)]
pub(super) enum Found {
    /// A plugin of this build.
    BuiltIn(Specification),
    /// One of another version, which the reference without its version means.
    OtherVersion { specification: Specification, reference: String, version: String },
    /// A program or module of the project, which the migration does not start.
    Standalone,
    /// None. The text says what to do.
    Nothing(String),
}

/// Finds the plugin of a reference. `has_files` says whether the project has programs or modules for this use.
pub(super) fn find(registry: &Registry, used_as: UsedAs, reference: &str, has_files: bool) -> Found {
    let specification = |reference: &str| match used_as {
        UsedAs::Connector(Role::Source) => registry.source(reference).map(|kind| kind.specification().clone()),
        UsedAs::Connector(Role::Destination) => {
            registry.destination(reference).map(|kind| kind.specification().clone())
        }
        UsedAs::Processor => registry.operator(reference).map(|kind| kind.specification().clone()),
    };
    let name = bare_name(reference);
    let error = match specification(reference) {
        Ok(specification) => return Found::BuiltIn(specification),
        Err(error) => error,
    };
    if let (ResolveError::WrongVersion { .. }, Some((unversioned, version))) = (&error, reference.split_once('@'))
        && let Ok(specification) = specification(unversioned)
    {
        return Found::OtherVersion { specification, reference: unversioned.to_owned(), version: version.to_owned() };
    }
    let directory = if used_as == UsedAs::Processor { "processors" } else { "connectors" };
    if let (UsedAs::Processor, Some(instead)) = (used_as, successor(name)) {
        return Found::Nothing(format!(
            "Conduit had this processor before version 0.9: use {instead}, whose settings have other names"
        ));
    }
    let is_builtin = reference.starts_with("builtin:");
    match error {
        ResolveError::Unknown { .. } | ResolveError::NotInstalled { .. } | ResolveError::StandaloneLeftOut { .. }
            if !is_builtin && has_files =>
        {
            Found::Standalone
        }
        ResolveError::NotInstalled { .. } | ResolveError::StandaloneLeftOut { .. } => Found::Nothing(format!(
            "the project has no file for the plugin {name} in `{directory}`: add it there, and to {directory}.path of the \
             new project"
        )),
        ResolveError::Unknown { near: Some(near), .. } => {
            Found::Nothing(format!("there is no plugin {name}: `{near}` has a similar name"))
        }
        ResolveError::Unknown { .. } => Found::Nothing(format!(
            "there is no plugin {name}: `anabranch {directory} list` has the plugins; one of your own goes to {directory}.path"
        )),
        error => Found::Nothing(format!("{error}: choose another plugin")),
    }
}

/// Returns the plugins that do what a processor of Conduit before version 0.9 did.
fn successor(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let kind = name.strip_suffix("payload").or_else(|| name.strip_suffix("key")).unwrap_or(&name);
    Some(match kind {
        "decodewithschema" => "`avro.decode`",
        "encodewithschema" => "`avro.encode`",
        "extractfield" => "`field.set` with a template of the field",
        "filterfield" => "`filter` with a condition",
        "hoistfield" => "`field.set` with a template, and `json.decode`",
        "httprequest" => "`webhook.http`",
        "insertfield" => "`field.set`",
        "js" => "`custom.javascript`",
        "maskfield" => "`field.mask`",
        "parsejson" => "`json.decode`",
        "replacefield" => "`field.exclude` and `field.rename`",
        "timestampconverter" => "`time.parse` and `time.format`",
        "unwrap" => "`unwrap.debezium` or `unwrap.kafkaconnect`",
        "valueto" => "`field.set` with the field `.Key`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_processors_have_successors() {
        for name in ["InsertFieldPayload", "insertfieldkey", "valuetokey", "js", "parsejsonkey", "unwrap"] {
            assert!(successor(name).is_some(), "{name}");
        }
        for name in ["field.set", "key", "monkey", ""] {
            assert_eq!(successor(name), None, "{name}");
        }
    }
}
