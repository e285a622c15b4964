//! Lowers a configuration to a graph: resolves plugin names, parses settings and compiles conditions.

mod condition;
mod credential;
mod elsewhere;
mod literal;
mod route;
mod topology;
mod unused;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use anabranch_plugin::arguments::Arguments;
use anabranch_plugin::destination::{Destination, DestinationKind};
use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span, Spanned};
use anabranch_plugin::operator::Fan;
use anabranch_plugin::parameters::shared;
use anabranch_plugin::registry::{Registry, ResolveError, Role};
use anabranch_plugin::secret::{self, MASKED_FROM};
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::Specification;
use anabranch_plugin::written::Written;
use anabranch_record::phrase::plural;
use anabranch_record::text::Str;
use anabranch_template::condition::CompiledCondition;
use anabranch_template::slips::{self, Suggestion};

use crate::codes;
use crate::plan::CompileOptions;
use crate::plan::graph::{ConfiguredSetting, Guard, Node, NodeKind, OperatorNode, PlanGraph};
use crate::plan::stage::{DeadLetterSpec, ReadSpec, WriteSpec};
use anabranch_config::{ConnectorConfig, DeadLetterConfig, PipelineConfig, ProcessorConfig};

/// Maximum number of workers of a processor. Each may be a thread, so a larger number is probably a typing error.
const MOST_WORKERS: u32 = 1024;

/// Result of lowering a configuration.
pub struct Lowered {
    /// The graph. Nodes with errors are left out.
    pub graph: PlanGraph,
    /// All findings.
    pub findings: Diagnostics,
    /// Values that must be masked wherever text leaves the process.
    pub secrets: Vec<Str>,
    /// Places of credentials in the files.
    pub credentials: Vec<Span>,
}

/// Lowers a pipeline.
pub fn lower(config: &PipelineConfig, registry: &Registry, options: &CompileOptions) -> Lowered {
    let mut resolver =
        Resolver { registry, options, findings: Diagnostics::new(), secrets: Vec::new(), credentials: Vec::new() };
    let connectors: Vec<_> =
        config.connectors.iter().enumerate().map(|(i, connector)| resolver.connector(i, connector)).collect();
    let processors = resolver.processors("", None, &config.processors);
    let route = resolver.route(config);
    let dead_letter = resolver.dead_letter(&config.dead_letter_queue);
    for (role, code, what) in [
        (Role::Source, codes::PLAN_NO_SOURCE, "source"),
        (Role::Destination, codes::PLAN_NO_DESTINATION, "destination"),
    ] {
        if !config.connectors.iter().any(|c| c.role.value == role) {
            resolver.findings.push(
                Diagnostic::error(code, format!("pipeline {:?} has no {what}", config.id.value))
                    .with_span(config.id.span)
                    .with_path("/connectors")
                    .with_hint(format!("add a connector of type {what}")),
            );
        }
    }
    Lowered {
        graph: topology::connect(connectors, processors, route, dead_letter),
        findings: resolver.findings,
        secrets: secret::forms(resolver.secrets),
        credentials: resolver.credentials,
    }
}

/// A connector with its processors. The node is `None` if the connector has errors.
struct LoweredConnector {
    role: Role,
    node: Option<Node>,
    processors: Vec<LoweredProcessor>,
}

/// A processor and its condition.
struct LoweredProcessor {
    node: Node,
    condition: Option<Node>,
}

/// A configured destination plugin, used as connector or as dead-letter queue.
struct LoweredDestination {
    plugin: Str,
    destination: Arc<dyn Destination>,
    arguments: Arguments,
    settings: Vec<ConfiguredSetting>,
}

/// Resolves names, settings and conditions, and collects findings.
struct Resolver<'a> {
    registry: &'a Registry,
    options: &'a CompileOptions,
    findings: Diagnostics,
    secrets: Vec<Str>,
    credentials: Vec<Span>,
}

impl Resolver<'_> {
    fn connector(&mut self, index: usize, config: &ConnectorConfig) -> LoweredConnector {
        let path = format!("/connectors/{index}");
        let kind = match config.role.value {
            Role::Source => self.source(&path, config),
            Role::Destination => self.destination(&path, config),
        };
        let node = kind.map(|(kind, settings)| Node {
            id: config.id.value.clone(),
            kind,
            settings,
            span: config.plugin.span,
            path: path.as_str().into(),
        });
        let processors = self.processors(&path, Some(&config.id.value), &config.processors);
        LoweredConnector { role: config.role.value, node, processors }
    }

    fn source(&mut self, path: &str, config: &ConnectorConfig) -> Option<(NodeKind, Vec<ConfiguredSetting>)> {
        let found = self.registry.source(&config.plugin.value);
        let kind = self.resolved(path, &config.plugin, found, "source", || {
            self.registry.sources().map(|k| k.specification().name.clone()).collect()
        })?;
        let (arguments, settings) = self.arguments(path, kind.specification(), &config.settings)?;
        let source = self.configured(path, &config.settings, kind.configure(&arguments))?;
        let batches: shared::SourceBatching = self.configured(path, &config.settings, arguments.read())?;
        let plugin = kind.specification().name.clone();
        if self.options.once && !source.catches_up() {
            self.findings.push(
                Diagnostic::error(
                    codes::PLAN_NEVER_CATCHES_UP,
                    format!("source {plugin:?} cannot detect the end of its data"),
                )
                .with_span(config.plugin.span)
                .with_path(format!("{path}/plugin"))
                .with_hint("a run with --once would never end: run it without --once"),
            );
            return None;
        }
        let spec = ReadSpec {
            connector: config.id.value.clone(),
            plugin,
            source,
            batch_rows: Some(batches.size).filter(|rows| *rows > 0),
            batch_delay: batches.delay,
        };
        Some((NodeKind::Source(spec), settings))
    }

    fn destination(&mut self, path: &str, config: &ConnectorConfig) -> Option<(NodeKind, Vec<ConfiguredSetting>)> {
        let LoweredDestination { plugin, destination, arguments, settings } =
            self.writer(path, &config.plugin, &config.settings, false)?;
        let batches: shared::DestinationBatching = self.configured(path, &config.settings, arguments.read())?;
        let rate = Some(batches.rate).filter(|rate| *rate > 0.0);
        let second = rate.map_or(1, |rate| rate.ceil().max(1.0) as usize);
        let spec = WriteSpec {
            connector: config.id.value.clone(),
            plugin,
            destination,
            batch_rows: Some(batches.size).filter(|rows| *rows > 0),
            batch_delay: Some(batches.delay).filter(|delay| *delay > Duration::ZERO),
            rate,
            burst: if batches.burst > 0 { batches.burst } else { second },
        };
        Some((NodeKind::Destination(spec), settings))
    }

    fn dead_letter(&mut self, config: &DeadLetterConfig) -> Option<Node> {
        let path = "/dead-letter-queue";
        let LoweredDestination { plugin, destination, settings, .. } =
            self.writer(path, &config.plugin, &config.settings, true)?;
        let (window_size, threshold) = (config.window_size.value, config.window_nack_threshold.value);
        // A pipeline without a configured queue uses the log, for the error message.
        let is_named = config.plugin.span.start < config.plugin.span.end && plugin != *"log";
        if is_named && window_size > 0 && threshold == 0 {
            self.findings.push(
                Diagnostic::warning(
                    codes::PLAN_NO_LETTER_KEPT,
                    "the queue never receives a dead letter: the first record that fails stops the pipeline",
                )
                .with_span(config.window_size.span)
                .with_path(format!("{path}/window-size"))
                .with_hint("write `window-size: 0` to store every failed record and continue"),
            );
        }
        let kind = NodeKind::DeadLetter(DeadLetterSpec { plugin, destination, window_size, threshold });
        Some(Node { id: DeadLetterSpec::NODE.into(), kind, settings, span: config.plugin.span, path: path.into() })
    }

    fn writer(
        &mut self,
        path: &str,
        plugin: &Spanned<Str>,
        settings: &Settings,
        letters: bool,
    ) -> Option<LoweredDestination> {
        let found = match letters {
            true => self.registry.destination(&plugin.value),
            false => self.registry.destination_of_records(&plugin.value),
        };
        let kind = self.resolved(path, plugin, found, "destination", || {
            let fit = |kind: &&Arc<dyn DestinationKind>| letters || !kind.takes_only_letters();
            self.registry.destinations().filter(fit).map(|k| k.specification().name.clone()).collect()
        })?;
        let (arguments, shown) = self.arguments(path, kind.specification(), settings)?;
        let destination = self.configured(path, settings, kind.configure(&arguments))?;
        Some(LoweredDestination { plugin: kind.specification().name.clone(), destination, arguments, settings: shown })
    }

    fn processors(
        &mut self,
        parent: &str,
        connector: Option<&Str>,
        configs: &[ProcessorConfig],
    ) -> Vec<LoweredProcessor> {
        configs
            .iter()
            .enumerate()
            .filter_map(|(i, config)| self.processor(&format!("{parent}/processors/{i}"), connector, config))
            .collect()
    }

    fn processor(&mut self, path: &str, connector: Option<&Str>, config: &ProcessorConfig) -> Option<LoweredProcessor> {
        let id: Str = match connector {
            Some(connector) => format!("{connector}:{}", config.id.value).into(),
            None => config.id.value.clone(),
        };
        // Compile both, so that the findings of both are reported.
        let operator = self.operator(path, config);
        let condition = match &config.condition {
            Some(written) => Some(self.condition(path, written)?),
            None => None,
        };
        let (operator, settings) = operator?;
        let many = operator.signature.fan.multiplies();
        let node = Node {
            id: id.clone(),
            kind: if many { NodeKind::Split(operator) } else { NodeKind::Operator(operator) },
            settings,
            span: config.plugin.span,
            path: path.into(),
        };
        let condition = condition.zip(config.condition.as_ref()).map(|(guard, written)| Node {
            id: format!("{id}?").into(),
            kind: NodeKind::Branch(guard),
            settings: Vec::new(),
            span: written.span(),
            path: format!("{path}/condition").into(),
        });
        Some(LoweredProcessor { node, condition })
    }

    fn operator(&mut self, path: &str, config: &ProcessorConfig) -> Option<(OperatorNode, Vec<ConfiguredSetting>)> {
        let found = self.registry.operator(&config.plugin.value);
        let kind = self.resolved(path, &config.plugin, found, "processor", || {
            self.registry.operators().map(|k| k.specification().name.clone()).collect()
        })?;
        let plugin = kind.specification().name.clone();
        let configured = self.arguments(path, kind.specification(), &config.settings).and_then(|(arguments, shown)| {
            self.configured(path, &config.settings, kind.configure(&arguments)).map(|operator| (operator, shown))
        });
        let (operator, shown) = configured?;
        let mut signature = operator.signature();
        if signature.fan == Fan::Many && !signature.needs_arch_v2 && !self.options.split {
            // The operator may be used, but the executor does not let it make several records of one.
            signature.fan = Fan::AtMostOne;
        }
        let mut sound = true;
        if signature.needs_arch_v2 && !self.options.split {
            sound = false;
            self.findings.push(
                Diagnostic::error(
                    codes::PLAN_NEEDS_ARCH_V2,
                    format!("processor {plugin:?} creates several records from one"),
                )
                .with_label(config.plugin.span, "this needs the newer pipeline architecture")
                .with_path(format!("{path}/plugin"))
                .with_hint("enable it with --preview.pipeline-arch-v2"),
            );
        }
        let workers = config.workers.value.max(1);
        let most = signature.max_workers.unwrap_or(MOST_WORKERS).min(MOST_WORKERS);
        if workers > most {
            sound = false;
            self.findings.push(
                Diagnostic::error(
                    codes::PLAN_TOO_MANY_WORKERS,
                    format!(
                        "processor {plugin:?} allows at most {most} {}, not {workers}",
                        plural(u64::from(most), "worker")
                    ),
                )
                .with_span(config.workers.span)
                .with_path(format!("{path}/workers"))
                .with_hint(match most {
                    1 => "it keeps state between records: remove `workers`".to_owned(),
                    _ => format!("use workers: {most} or fewer"),
                }),
            );
        }
        sound.then(|| (OperatorNode { plugin, operator, signature, workers, guard: None }, shown))
    }

    fn condition(&mut self, path: &str, written: &Written) -> Option<Guard> {
        let path = format!("{path}/condition");
        self.secrets.extend(written.substituted().filter(|text| text.len() >= MASKED_FROM).cloned());
        if let Some(finding) = condition::between_curly_quotes(written) {
            self.findings.push(finding.with_path(path));
            return None;
        }
        let condition = match CompiledCondition::compile(written.value()) {
            Ok(condition) => condition,
            Err(error) => {
                self.findings.push(condition::invalid(written, error).with_path(path));
                return None;
            }
        };
        let findings = literal::out_of_a_variable("the condition", written);
        self.findings.0.extend(findings.map(|finding| finding.with_path(path.clone())));
        // A condition that reads nothing of a record has the same result for every record.
        if let Some(fault) = condition.failure() {
            let message = match written.is_substituted() {
                true => "the condition fails for every record".to_owned(),
                false => format!("the condition fails for every record: {}", fault.message()),
            };
            let finding =
                Diagnostic::error(codes::PLAN_CONDITION_FAILS, message).with_span(written.span()).with_path(path);
            let literal = condition.template().literal().filter(|_| !written.is_substituted());
            let meant = literal.and_then(slips::bare);
            self.findings.push(match meant {
                Some(Suggestion { text, sure }) => {
                    let finding =
                        finding.with_hint(format!("a condition is a template: write {}", condition::in_quotes(&text)));
                    if sure { condition::quoted(finding, written, &text) } else { finding }
                }
                None => finding.with_hint(
                    "write a template that returns true or false, for example {{ eq .Operation.String \"create\" }}",
                ),
            });
            return None;
        }
        Some(Guard { condition: Arc::new(condition), written: written.clone(), as_before: false })
    }

    fn resolved<K>(
        &mut self,
        path: &str,
        plugin: &Spanned<Str>,
        found: Result<K, ResolveError>,
        role: &str,
        names: impl FnOnce() -> Vec<Str>,
    ) -> Option<K> {
        let error = match found {
            Ok(kind) => return Some(kind),
            Err(error) => error,
        };
        let known = names();
        let (code, hint) = match &error {
            ResolveError::Unknown { near: Some(near), name } => {
                let instead =
                    elsewhere::instead(role, name).filter(|(plugin, _)| known.iter().any(|name| name == plugin));
                let hint = match instead {
                    Some((plugin, word)) => format!("write `plugin: {plugin}`, {word}"),
                    None => format!("did you mean {near:?}?"),
                };
                (codes::PLAN_UNKNOWN_PLUGIN, Some(hint))
            }
            ResolveError::Unknown { near: None, name } => match elsewhere::instead(role, name) {
                Some((plugin, word)) if known.iter().any(|name| name == plugin) => {
                    (codes::PLAN_UNKNOWN_PLUGIN, Some(format!("write `plugin: {plugin}`, {word}")))
                }
                _ => {
                    let command = if role == "processor" { "processors" } else { "connectors" };
                    let all =
                        format!("available {role}s: {}; `anabranch {command} list` describes them", listed(&known));
                    (codes::PLAN_UNKNOWN_PLUGIN, Some(all))
                }
            },
            ResolveError::WrongRole { .. } => {
                (codes::PLAN_WRONG_ROLE, Some(format!("available {role}s: {}", listed(&known))))
            }
            ResolveError::WrongVersion { name, found, .. } => {
                (codes::PLAN_WRONG_VERSION, Some(format!("write {name:?} for any version, or \"{name}@{found}\"")))
            }
            ResolveError::UnknownPrefix { .. } => {
                (codes::PLAN_UNKNOWN_PLUGIN_TYPE, Some("write builtin, standalone or any".to_owned()))
            }
            ResolveError::LeftOut { .. } | ResolveError::StandaloneLeftOut { .. } => {
                (codes::PLAN_PLUGIN_LEFT_OUT, None)
            }
            ResolveError::NotInstalled { .. } => (codes::PLAN_PLUGIN_NOT_INSTALLED, None),
        };
        let message = match &error {
            ResolveError::Unknown { name, .. } => format!("unknown {role} {name:?}"),
            other => other.to_string(),
        };
        let finding = Diagnostic::error(code, message).with_span(plugin.span).with_path(format!("{path}/plugin"));
        let finding = match &error {
            ResolveError::Unknown { name, near: Some(near) } => {
                // The nearest name is chosen from all plugins; it is a correction only if it is the single nearest.
                let names = known.iter().map(Str::as_str).chain([near.as_str()]);
                finding.with_slip(plugin.span, name, names)
            }
            _ => finding,
        };
        self.findings.push(match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        });
        None
    }

    /// Parses the arguments. Also returns the configured settings in displayable form.
    fn arguments(
        &mut self,
        path: &str,
        specification: &Specification,
        settings: &Settings,
    ) -> Option<(Arguments, Vec<ConfiguredSetting>)> {
        for setting in &settings.entries {
            let name = setting.name.value.trim();
            let is_secret = specification.parameter(name).is_some_and(|parameter| parameter.is_secret(name));
            let holds_password = credential::stands_in(&setting.value, is_secret);
            let written = setting.value.written();
            let is_hidden = is_secret && *secret::without_literals(written) != **written;
            // The file shows only the name of a variable.
            let is_secret = is_secret && !setting.value.is_substituted();
            if is_hidden || holds_password {
                self.credentials.push(setting.value.span());
            }
            // The text after the sign is not displayed, since it may be a password.
            if is_secret && literal::is_bare_variable(setting.value.written()) {
                self.findings.push(
                    Diagnostic::warning(
                        codes::SETTINGS_NOT_A_VARIABLE,
                        format!("{name}: the name after $ is literal text: variables have braces"),
                    )
                    .with_span(setting.value.span())
                    .with_path(format!("{path}/settings/{name}"))
                    .with_hint("write `${NAME}` with that name, or `${file:/path/of/the/secret}`"),
                );
            } else if holds_password {
                self.findings.push(
                    Diagnostic::warning(
                        codes::PLAN_LITERAL_SECRET,
                        format!("{name} contains a credential in plain text, and the state store keeps a copy of it"),
                    )
                    .with_span(setting.value.span())
                    .with_path(format!("{path}/settings/{name}"))
                    .with_hint(
                        "write `${NAME}` or `${file:/path/of/the/secret}`: the store then keeps only the reference",
                    ),
                );
            }
        }
        let arguments = self.configured(path, settings, Arguments::parse(specification, settings))?;
        let mut findings = literal::find(specification, settings);
        findings.extend(unused::find(specification, settings, &arguments));
        self.findings.0.extend(findings.into_iter().map(|finding| located(path, settings, finding)));
        self.secrets.extend(arguments.secrets());
        let shown = settings
            .entries
            .iter()
            .filter_map(|setting| {
                let given = setting.name.value.trim();
                let parameter = specification.parameter(given)?;
                let name = if parameter.name.contains('*') { given.into() } else { parameter.name.clone() };
                let shown = arguments.shown(&name)?;
                Some(ConfiguredSetting { name, shown, span: setting.value.span(), value: setting.value.clone() })
            })
            .collect();
        Some((arguments, shown))
    }

    fn configured<T>(&mut self, path: &str, settings: &Settings, result: Result<T, Diagnostics>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(findings) => {
                self.findings.0.extend(findings.into_iter().map(|finding| located(path, settings, finding)));
                None
            }
        }
    }
}

/// Makes the path of a settings finding relative to the pipeline. A finding names its setting by path or, if a plugin
/// reports it, only by place.
fn located(path: &str, settings: &Settings, finding: Diagnostic) -> Diagnostic {
    let span = finding.label.as_ref().map(|label| label.span);
    let setting = || {
        let span = span.filter(|span| span.start < span.end)?;
        let holds = |outer: anabranch_plugin::diagnostic::Span| {
            outer.file == span.file && outer.start <= span.start && span.end <= outer.end
        };
        settings.entries.iter().find(|s| holds(s.name.span) || holds(s.value.span()))
    };
    let below = match (&finding.path, setting()) {
        (Some(below), _) => below.clone(),
        (None, Some(setting)) => format!("/{}", pointer_part(&setting.name.value)),
        (None, None) => String::new(),
    };
    let located = finding.with_path(format!("{path}/settings{below}"));
    match located.label {
        Some(_) => located,
        None => located.with_span(settings.span),
    }
}

/// Escapes a name for use in a JSON pointer.
fn pointer_part(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn listed(names: &[Str]) -> String {
    const MOST: usize = 16;
    let mut text = join(names.iter().take(MOST));
    if names.len() > MOST {
        text.push_str(", …");
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

fn join(items: impl Iterator<Item = impl Display>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
