//! Specification of a plugin, and the separation of its own settings from those of the executor.

use std::collections::HashMap;

use anabranch_ops_opencdc::specification::parameters;
use anabranch_ops_opencdc::wire;
use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::diagnostic::Span;
use anabranch_plugin::parameters::shared;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

use crate::protocol::Role;

/// Settings that the executor handles for every connector; plugins do not receive them.
const BATCH_SIZE: &str = "sdk.batch.size";
const BATCH_DELAY: &str = "sdk.batch.delay";
const RATE: [&str; 2] = ["sdk.rate.perSecond", "sdk.rate.burst"];

/// Returns the parameters of a role that the executor handles. Schemas are the plugin's own: a source names and encodes
/// its data, a destination decodes it.
fn ours(role: Role) -> Vec<Parameter> {
    let mut all = match role {
        Role::Source => shared::source(),
        Role::Destination => shared::destination(),
    };
    all.retain(|parameter| is_ours(&parameter.name));
    all
}

fn is_ours(name: &str) -> bool {
    name == BATCH_SIZE || name == BATCH_DELAY || RATE.contains(&name)
}

/// Settings that disable a plugin's default behaviour in favour of the executor's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DisabledDefaults(Vec<(&'static str, &'static str)>);

/// A role of a plugin.
pub(crate) struct PluginRole {
    pub(crate) specification: Specification,
    pub(crate) silenced: DisabledDefaults,
}

/// Returns the plugin as a source and as a destination. A plugin does not have a role without parameters.
pub(crate) fn roles(given: &crate::wire::Specification) -> (Option<PluginRole>, Option<PluginRole>) {
    let part = |role, given_parameters: &HashMap<String, wire::Parameter>| {
        (!given_parameters.is_empty()).then(|| part(given, role, given_parameters))
    };
    (part(Role::Source, &given.source_params), part(Role::Destination, &given.destination_params))
}

fn part(given: &crate::wire::Specification, role: Role, by_name: &HashMap<String, wire::Parameter>) -> PluginRole {
    let mut ours = ours(role);
    let mut silenced = DisabledDefaults::default();
    for (name, zero) in [(BATCH_SIZE, "0"), (BATCH_DELAY, "0s")] {
        let Some(default) = by_name.get(name).map(|parameter| parameter.default.trim()) else { continue };
        if matches!(default, "" | "0" | "0s") {
            continue;
        }
        silenced.0.push((name, zero));
        if let Some(parameter) = ours.iter_mut().find(|parameter| parameter.name == *name) {
            let before = parameter.default.replace(default.into());
            if !is_usable(parameter) {
                parameter.default = before;
            }
        }
    }
    let mut specification = Specification::builtin("", "");
    let text = |text: &str| Str::from(text.trim());
    specification.name = text(&given.name);
    specification.version = text(&given.version);
    specification.summary = text(&given.summary);
    specification.description = match given.description.trim() {
        "" => text(&given.summary),
        description => Str::from(description),
    };
    specification.author = text(&given.author);
    specification.parameters = parameters(by_name)
        .into_iter()
        .filter(|parameter| ours.iter().all(|ours| ours.name != parameter.name))
        .map(own)
        .collect();
    specification.parameters.extend(ours);
    PluginRole { specification, silenced }
}

/// Converts a parameter of the plugin.
fn own(mut parameter: Parameter) -> Parameter {
    // The plugin parses its own default, possibly in another way.
    if !is_usable(&parameter) {
        parameter.kind = ParameterKind::Text;
        parameter.validations.retain(|validation| *validation == anabranch_plugin::specification::Validation::Required);
    }
    parameter
}

/// Returns `true` if a parameter's default has its type and satisfies its validations.
fn is_usable(parameter: &Parameter) -> bool {
    let Some(default) = &parameter.default else { return true };
    let mut specification = Specification::builtin("", "");
    let mut alone = parameter.clone();
    alone.default = None;
    alone.name = "x".into();
    specification.parameters.push(alone);
    Arguments::parse(&specification, &Settings::from_pairs([("x", default.as_str())])).is_ok()
}

/// Returns the settings for a plugin: those of the file unchanged, without defaults and without those of the executor.
pub(crate) fn given(arguments: &Arguments, silenced: &DisabledDefaults) -> Vec<(Str, Written)> {
    let mut given: Vec<(Str, Written)> =
        arguments.given().filter(|(name, _)| !is_ours(name)).map(|(name, text)| (name.clone(), text)).collect();
    given.extend(silenced.0.iter().map(|(name, zero)| ((*name).into(), Written::new(*zero, *zero, Span::default()))));
    given.sort_by(|a, b| a.0.cmp(&b.0));
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(kind: i32, default: &str) -> wire::Parameter {
        wire::Parameter { kind, default: default.to_owned(), ..wire::Parameter::default() }
    }

    fn destination(parameters: &[(&str, wire::Parameter)]) -> PluginRole {
        let by_name = parameters.iter().map(|(name, parameter)| ((*name).to_owned(), parameter.clone())).collect();
        let given = crate::wire::Specification { destination_params: by_name, ..Default::default() };
        let (source, destination) = roles(&given);
        assert!(source.is_none());
        destination.unwrap()
    }

    fn sent(part: &PluginRole, pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let settings = Settings::from_pairs(pairs.iter().copied());
        let arguments = Arguments::parse(&part.specification, &settings).unwrap();
        let given = given(&arguments, &part.silenced).into_iter();
        given.map(|(name, text)| (name.to_string(), text.value().to_string())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_plugin_gets_what_the_file_says_and_no_defaults() {
        let part = destination(&[
            ("path", parameter(1, "out.txt")),
            ("options.*", parameter(1, "")),
            ("sdk.batch.size", parameter(2, "0")),
            ("sdk.batch.delay", parameter(6, "0s")),
            ("sdk.schema.extract.key.enabled", parameter(4, "true")),
        ]);
        assert_eq!(sent(&part, &[]), pairs(&[]));
        let schemas = [("path", "x"), ("sdk.schema.extract.key.enabled", "false")];
        assert_eq!(sent(&part, &schemas), pairs(&schemas));
        assert_eq!(
            sent(&part, &[("options.a.b", "1"), ("sdk.batch.size", "7"), ("sdk.rate.perSecond", "5"), ("path", " ")]),
            pairs(&[("options.a.b", "1"), ("path", "")])
        );
    }

    #[test]
    fn a_plugin_that_batches_by_default_is_told_not_to() {
        let part = destination(&[("sdk.batch.size", parameter(2, "1000")), ("sdk.batch.delay", parameter(6, "1s"))]);
        assert_eq!(sent(&part, &[]), pairs(&[("sdk.batch.delay", "0s"), ("sdk.batch.size", "0")]));
        let arguments = Arguments::parse(&part.specification, &Settings::from_pairs([])).unwrap();
        assert_eq!(arguments.read::<shared::DestinationBatching>().unwrap().size, 1000);
    }

    #[test]
    fn a_default_that_we_would_refuse_is_the_plugins_own_affair() {
        let part = destination(&[("wait", parameter(6, "1 fortnight"))]);
        assert_eq!(sent(&part, &[]), pairs(&[]));
        assert_eq!(sent(&part, &[("wait", "2 fortnights")]), pairs(&[("wait", "2 fortnights")]));
    }
}
