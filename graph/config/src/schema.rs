//! The JSON Schema of pipeline files, generated from the declarations of the plugins.
//!
//! Everything that the schema rejects also gets an error or a warning from loading or compiling. The reverse does not
//! hold: a schema cannot check the values of variables, references between parts, or templates.

mod known;

use anabranch_plugin::registry::Registry;
use anabranch_plugin::specification::{Parameter, ParameterKind, Specification, Validation};
use anabranch_record::text::Str;
use serde_json::{Map, Value, json};

use super::dead_letter::MAX_WINDOW;
use super::pipeline::{MAX_DESCRIPTION_BYTES, MAX_PIPELINE_ID_BYTES, MAX_PIPELINE_NAME_BYTES};
use super::processor::MAX_WORKERS;
use known::KnownPlugin;

/// Matches a variable. A text with a variable can have any value.
const VARIABLE: &str = r"\$\{";
const BLANK: &str = r"^\s*$";

/// Returns the JSON Schema (draft 2020-12) of one document of a pipeline file, for the plugins of `registry`. Editors
/// use it for completion and checks. O(parameters of all plugins).
pub fn json_schema(registry: &Registry) -> Value {
    let sources = known::sources(registry);
    let (destinations, queues) = (known::destinations(registry, false), known::destinations(registry, true));
    let processors = known::processors(registry);

    let mut definitions = Map::new();
    let mut define = |name: &str, schema: Value| definitions.insert(name.to_owned(), schema);
    for KnownPlugin { specification, settings: name, .. } in [&sources, &queues, &processors].into_iter().flatten() {
        define(name, settings(specification));
    }
    for (name, role, known) in [
        ("source.plugin", "source", &sources),
        ("destination.plugin", "destination", &destinations),
        ("queue.plugin", "destination", &queues),
        ("processor.plugin", "processor", &processors),
    ] {
        define(name, plugins(role, known));
    }
    let connector = |role: &'static str| {
        let of_role = json!({ "properties": { "type": { "const": role } }, "required": ["type"] });
        let plugin =
            json!({ "if": of_role, "then": { "properties": { "plugin": reference(&format!("{role}.plugin")) } } });
        let known = if role == "source" { &sources } else { &destinations };
        std::iter::once(plugin).chain(known.iter().map(move |known| by_plugin(role, known, Some(role))))
    };
    define(
        "connector.settings",
        json!({ "allOf": connector("source").chain(connector("destination")).collect::<Value>() }),
    );
    let of_processor = processors.iter().map(|known| by_plugin("processor", known, None));
    define("processor.settings", json!({ "allOf": of_processor.collect::<Value>() }));
    let of_queue = queues.iter().map(|known| by_plugin("destination", known, None));
    define("dead-letter-queue", dead_letter_queue(&of_queue.collect::<Vec<_>>()));
    for shape in [Representation::List, Representation::Map] {
        define(shape.name("processor"), processor(shape));
        define(shape.name("connector"), self::connector(shape));
        define(shape.name("pipeline"), pipeline(shape));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pipelines",
        "description": "A document of a pipeline file.",
        "type": ["object", "null"],
        "properties": {
            "version": {
                "description": "Version of the file format.",
                "anyOf": [
                    { "enum": ["2.2", "2.1", "2.0", "1.1", "1.0"] },
                    { "type": "number", "enum": [2.2, 2.1, 2, 1.1, 1] },
                    { "type": "string", "pattern": VARIABLE },
                ],
                "default": "2.2",
            },
            "pipelines": { "description": "The pipelines." },
        },
        "patternProperties": { "^x-": { "description": "Fields for YAML anchors." } },
        "additionalProperties": false,
        // Before version 2, parts are in maps by id. `pattern` ignores numbers, and `exclusiveMaximum` ignores texts.
        "if": { "properties": { "version": { "pattern": r"^\s*1", "exclusiveMaximum": 2 } }, "required": ["version"] },
        "then": { "properties": { "pipelines": Representation::Map.of("pipeline") } },
        "else": { "properties": { "pipelines": Representation::List.of("pipeline") } },
        "$defs": definitions,
    })
}

/// Representation of several parts of the same kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Representation {
    /// A list of parts with ids.
    List,
    /// A map by id, before version 2.
    Map,
}

impl Representation {
    fn name(self, part: &'static str) -> &'static str {
        match (self, part) {
            (Representation::List, part) => part,
            (Representation::Map, "pipeline") => "pipeline-by-id",
            (Representation::Map, "connector") => "connector-by-id",
            (Representation::Map, _) => "processor-by-id",
        }
    }

    fn of(self, part: &'static str) -> Value {
        let items = reference(self.name(part));
        match self {
            Representation::List => json!({ "type": ["array", "null"], "items": items }),
            Representation::Map => json!({ "type": ["object", "null"], "additionalProperties": items }),
        }
    }

    /// Returns the schema of an object with these fields, and with an id unless its key is the id.
    fn object(self, description: &str, mut fields: Map<String, Value>, id: Value, required: &[&str]) -> Value {
        let mut required: Vec<&str> = required.to_vec();
        if self == Representation::List {
            fields.insert("id".to_owned(), id);
            required.insert(0, "id");
        }
        json!({
            "description": description,
            "type": "object",
            "properties": fields,
            "additionalProperties": false,
            "required": required,
        })
    }
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

fn fields(fields: Value) -> Map<String, Value> {
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn text(description: &str) -> Value {
    json!({ "description": description, "type": ["string", "number", "boolean", "null"] })
}

fn text_up_to(max: usize, description: &str) -> Value {
    json!({ "description": description, "type": ["string", "number", "boolean", "null"], "maxLength": max })
}

/// Returns the schema of a word out of several, or a text with a variable.
fn word(words: &[&str], pattern: &str, description: &str) -> Value {
    let other = json!({ "type": ["string", "null"], "pattern": pattern });
    json!({ "description": description, "anyOf": [{ "enum": words }, other] })
}

fn number(max: u64, default: u64, description: &str) -> Value {
    json!({
        "description": description,
        "type": ["integer", "string", "null"],
        "minimum": 0,
        "maximum": max,
        "pattern": r"^\$\{[^}]*\}$",
        "default": default,
    })
}

fn pipeline(shape: Representation) -> Value {
    let mut connectors = shape.of("connector");
    connectors["description"] = json!("Sources and destinations: at least one of each.");
    if shape == Representation::List {
        // A connector with an invalid type is reported at its place only, not also as a missing source or destination.
        let one_that_is_no = |role: &str| json!({ "contains": { "not": { "properties": { "type": { "const": role } }, "required": ["type"] } } });
        connectors["type"] = json!("array");
        connectors["allOf"] = json!([one_that_is_no("source"), one_that_is_no("destination")]);
    }
    let mut processors = shape.of("processor");
    processors["description"] = json!("Processors between all sources and all destinations, in order.");
    let id = json!({
        "description": "Id of the pipeline. Its state is stored under this id.",
        "type": ["string", "number"],
        "pattern": format!("^[A-Za-z0-9._:-]+$|{VARIABLE}"),
        "maxLength": MAX_PIPELINE_ID_BYTES,
    });
    let of = fields(json!({
        "name": text_up_to(MAX_PIPELINE_NAME_BYTES, "Displayed name; defaults to the id."),
        "description": text_up_to(MAX_DESCRIPTION_BYTES, "Free-text description."),
        "status": word(
            &["running", "stopped"],
            &format!("^$|{VARIABLE}"),
            "Whether the service starts the pipeline. Default: running.",
        ),
        "connectors": connectors,
        "processors": processors,
        "unmatched": text("What becomes of records that fulfil the condition of no destination: `drop` (default), `dead-letter`, `fail` (the pipeline stops), or the id of a destination that receives them."),
        "placement": text("Which nodes of a cluster may run the pipeline: those with this label (`cluster.labels`). A pipeline that names files needs one, or `shared` if all nodes see the same files. Default: all nodes."),
        "dead-letter-queue": reference("dead-letter-queue"),
    }));
    shape.object("A pipeline: sources, processors and destinations.", of, id, &["connectors"])
}

fn required_text(description: &str) -> Value {
    json!({ "description": description, "type": ["string", "number", "boolean"], "pattern": r"\S" })
}

/// Returns the schema for the settings of an unknown plugin, for example one named by a variable.
fn any_settings() -> Value {
    json!({
        "description": "Settings of the plugin.",
        "type": ["object", "null"],
        "additionalProperties": { "type": ["string", "number", "boolean", "null"] },
    })
}

/// Returns the schema of the settings that are accepted next to `plugin`.
fn beside() -> Value {
    json!({ r"^sdk\.schema\.": { "type": ["string", "number", "boolean", "null"] } })
}

fn connector(shape: Representation) -> Value {
    let mut processors = shape.of("processor");
    processors["description"] =
        json!("Processors of this connector only, in order: after a source, before a destination.");
    let of = fields(json!({
        "type": {
            "description": "Role of the connector.",
            "anyOf": [{ "enum": ["source", "destination"] }, { "type": "string", "pattern": VARIABLE }],
        },
        "plugin": required_text("Name of the plugin, optionally with the prefix `builtin:` or `standalone:` and the suffix `@version`."),
        "name": text("Displayed name; defaults to the id."),
        "condition": text("For a destination: a template. The destination receives the records for which its output is `true`."),
        "settings": any_settings(),
        "processors": processors,
    }));
    let id = required_text("Id, unique within the pipeline. Source positions are stored under this id.");
    let mut schema = shape.object("A source or a destination.", of, id, &["type", "plugin"]);
    schema["patternProperties"] = beside();
    schema["allOf"] = json!([reference("connector.settings")]);
    schema
}

fn processor(shape: Representation) -> Value {
    let mut old = reference("processor.plugin");
    old["deprecated"] = json!(true);
    old["description"] = json!("Old name of `plugin`, from before version 2.2.");
    let of = fields(json!({
        "plugin": reference("processor.plugin"),
        "type": old,
        "condition": text("A template. The processor applies to records for which its output is `true`; other records pass unchanged."),
        "workers": number(MAX_WORKERS, 1, "Number of parallel workers. The order of records is preserved."),
        "settings": any_settings(),
    }));
    let mut schema = shape.object("A processor.", of, required_text("Id, unique among its siblings."), &[]);
    schema["patternProperties"] = beside();
    schema["anyOf"] = json!([{ "required": ["plugin"] }, { "required": ["type"] }]);
    schema["allOf"] = json!([reference("processor.settings")]);
    schema
}

fn dead_letter_queue(by_plugin: &[Value]) -> Value {
    let mut plugin = reference("queue.plugin");
    plugin["default"] = json!("builtin:log");
    json!({
        "description": "Dead-letter queue for failed records. Default: the log.",
        "type": ["object", "null"],
        "properties": {
            "plugin": { "anyOf": [plugin, { "type": "null" }], "description": "The destination plugin." },
            "settings": any_settings(),
            "window-size": number(
                MAX_WINDOW,
                1,
                "Number of latest records in the window; 0 = failures never stop the pipeline.",
            ),
            "window-nack-threshold": number(
                MAX_WINDOW,
                0,
                "Maximum number of failed records in the window; one more stops the pipeline.",
            ),
        },
        "additionalProperties": false,
        "allOf": by_plugin,
    })
}

/// Returns the schema for the plugin names of a role.
fn plugins(role: &str, known: &[KnownPlugin<'_>]) -> Value {
    let named =
        known.iter().map(|known| json!({ "const": known.name, "description": known.specification.summary.as_str() }));
    let mut names: Vec<String> = known.iter().map(|known| regex::escape(&known.specification.name)).collect();
    names.dedup();
    let pattern = format!("^((builtin|any):)?({})(@.+)?$|^standalone:.|{VARIABLE}", names.join("|"));
    json!({
        "description": format!("The {role} plugin."),
        "anyOf": named.chain([json!({ "type": "string", "pattern": pattern })]).collect::<Value>(),
    })
}

/// Returns the schema that applies to the settings of a part that uses this plugin.
fn by_plugin(role: &str, known: &KnownPlugin<'_>, of_type: Option<&str>) -> Value {
    let named = json!({ "type": "string", "pattern": known.pattern });
    let condition = match (role, of_type) {
        (_, Some(of_type)) => json!({
            "properties": { "type": { "const": of_type }, "plugin": named },
            "required": ["type", "plugin"],
        }),
        ("processor", None) => json!({
            "anyOf": [
                { "properties": { "plugin": named.clone() }, "required": ["plugin"] },
                { "properties": { "type": named, "plugin": false }, "required": ["type"] },
            ],
        }),
        (_, None) => json!({ "properties": { "plugin": named }, "required": ["plugin"] }),
    };
    let mut then = json!({ "properties": { "settings": reference(&known.settings) } });
    if known.specification.parameters.iter().any(is_mandatory) {
        then["required"] = json!(["settings"]);
    }
    json!({ "if": condition, "then": then })
}

/// Returns `true` if the file must set the parameter.
fn is_mandatory(parameter: &Parameter) -> bool {
    parameter.is_required() && parameter.default.is_none() && !parameter.name.contains('*')
}

/// Returns the schema for the settings of a plugin.
fn settings(specification: &Specification) -> Value {
    let mut properties = Map::new();
    let mut patterns = Map::new();
    let mut required = Vec::new();
    let mut one_of_names = Vec::new();
    for parameter in &specification.parameters {
        let schema = value(parameter);
        let names = std::iter::once(&parameter.name).chain(&parameter.aliases);
        if is_mandatory(parameter) {
            match parameter.aliases.as_slice() {
                [] => required.push(json!(parameter.name.as_str())),
                _ => one_of_names.push(
                    json!({ "anyOf": names.clone().map(|name| json!({ "required": [name.as_str()] })).collect::<Value>() }),
                ),
            }
        }
        for name in names {
            if name.contains('*') {
                patterns.insert(name_pattern(name, specification), schema.clone());
            } else {
                properties.insert(name.to_string(), schema.clone());
            }
        }
    }
    let mandatory = !required.is_empty() || !one_of_names.is_empty();
    let mut schema = json!({
        "title": specification.name.as_str(),
        "description": specification.summary.as_str(),
        "type": if mandatory { json!("object") } else { json!(["object", "null"]) },
        "properties": properties,
        "additionalProperties": false,
    });
    for (keyword, value) in [("required", required), ("allOf", one_of_names)] {
        if !value.is_empty() {
            schema[keyword] = json!(value);
        }
    }
    if !patterns.is_empty() {
        schema["patternProperties"] = json!(patterns);
    }
    schema
}

/// Returns a pattern for the names that belong to a parameter with `*`: names that match it and no parameter with
/// precedence over it.
fn name_pattern(name: &Str, specification: &Specification) -> String {
    let overlaps = |other: &str| {
        let part = |(a, b): (&str, &str)| a == b || a == "*" || b == "*";
        let (parts, others) = (name.split('.').count(), other.split('.').count());
        // A `*` at the end matches all remaining parts.
        let long_enough = |name: &str, parts, others| parts >= others || name == "*" || name.ends_with(".*");
        long_enough(name, parts, others)
            && long_enough(other, others, parts)
            && other.split('.').zip(name.split('.')).all(part)
    };
    let as_pattern = |name: &str| {
        let pattern = regex::escape(name).replace(r"\*", "[^.]+");
        let open = pattern.strip_suffix("[^.]+").map(|begin| format!("{begin}.+"));
        format!("{}$", open.unwrap_or(pattern))
    };
    let names = || specification.parameters.iter().map(|parameter| &parameter.name);
    let exact = names().filter(|other| !other.contains('*'));
    let earlier = names().take_while(|other| *other != name).filter(|other| other.contains('*'));
    let before = exact.chain(earlier).filter(|other| overlaps(other)).map(|other| format!("(?!{})", as_pattern(other)));
    format!("^{}{}", before.collect::<String>(), as_pattern(name))
}

/// Returns the schema for the YAML values of a parameter. Settings are texts; numbers and booleans are accepted as
/// texts.
fn value(parameter: &Parameter) -> Value {
    let mandatory = is_mandatory(parameter);
    let mut schema = match parameter.kind {
        ParameterKind::Int => typed(&["integer"], Some(r"^\s*[+-]?[0-9]+\s*$"), mandatory),
        ParameterKind::Float => {
            typed(&["number"], Some(r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"), mandatory)
        }
        ParameterKind::Bool => {
            let mut schema = typed(
                &["boolean", "integer"],
                Some(r"^\s*(1|t|T|TRUE|true|True|0|f|F|FALSE|false|False)\s*$"),
                mandatory,
            );
            schema["minimum"] = json!(0);
            schema["maximum"] = json!(1);
            schema
        }
        ParameterKind::Duration => {
            let units = "(ns|us|µs|μs|ms|s|m|h)";
            let text = typed(&[], Some(&format!(r"^\s*\+?(0|([0-9.]+{units})+)\s*$")), mandatory);
            json!({ "anyOf": [text, { "const": 0 }] })
        }
        ParameterKind::Bytes => {
            let mut schema = typed(&["integer"], Some(r"^\s*[0-9]+\s*(B|KiB|MiB|GiB|KB|kB|MB|GB)?\s*$"), mandatory);
            schema["minimum"] = json!(0);
            schema
        }
        ParameterKind::Reference => typed(&[], Some(&reference_pattern(parameter)), mandatory),
        ParameterKind::Text | ParameterKind::Template | ParameterKind::File | ParameterKind::List => {
            text_value(parameter, mandatory)
        }
    };
    for validation in &parameter.validations {
        let number = matches!(parameter.kind, ParameterKind::Int | ParameterKind::Float | ParameterKind::Bytes);
        match validation {
            Validation::GreaterThan(bound) if number => schema["exclusiveMinimum"] = json!(bound),
            Validation::LessThan(bound) if number => schema["exclusiveMaximum"] = json!(bound),
            Validation::NotOneOf(texts) => schema["not"] = json!({ "enum": strings(texts) }),
            _ => {}
        }
    }
    if let Some(fields) = schema.as_object_mut().filter(|_| parameter.blank) {
        fields.remove("pattern");
    }
    schema["description"] = json!(parameter.description.as_str());
    if let Some(default) = parameter.default.as_ref().filter(|default| !default.is_empty()) {
        schema["default"] = match parameter.kind {
            ParameterKind::Int | ParameterKind::Float | ParameterKind::Bool => {
                serde_json::from_str(default).unwrap_or_else(|_| json!(default.as_str()))
            }
            _ => json!(default.as_str()),
        };
    }
    if parameter.description.starts_with("Deprecated") {
        schema["deprecated"] = json!(true);
    }
    if parameter.secret {
        schema["writeOnly"] = json!(true);
    }
    schema
}

/// Returns the schema of a value of these types, or of a text that matches a pattern. A blank value counts as absent.
fn typed(types: &[&str], pattern: Option<&str>, mandatory: bool) -> Value {
    let mut types = types.to_vec();
    types.push("string");
    if !mandatory {
        types.push("null");
    }
    let pattern = match (pattern, mandatory) {
        (Some(pattern), true) => format!("{pattern}|{VARIABLE}"),
        (Some(pattern), false) => format!("{pattern}|{BLANK}|{VARIABLE}"),
        (None, true) => r"\S".to_owned(),
        (None, false) => return json!({ "type": types }),
    };
    json!({ "type": types, "pattern": pattern })
}

fn text_value(parameter: &Parameter, mandatory: bool) -> Value {
    const SCALARS: &[&str] = &["number", "boolean"];
    let is_list = parameter.kind == ParameterKind::List;
    let words = parameter.validations.iter().find_map(|validation| match validation {
        Validation::OneOf(words) => Some(words),
        _ => None,
    });
    if let Some(words) = words {
        let any = words.iter().map(|word| regex::escape(word)).collect::<Vec<_>>().join("|");
        if is_list {
            return typed(SCALARS, Some(&format!(r"^\s*({any})\s*(,\s*({any})\s*)*$")), mandatory);
        }
        let other = typed(&[], Some(&format!("^({any})$")), mandatory);
        // A word may be a valid number or boolean.
        let scalars = words.iter().filter_map(|word| serde_json::from_str::<Value>(word).ok());
        let known: Vec<Value> = strings(words).into_iter().chain(scalars.filter(|value| !value.is_string())).collect();
        return json!({ "anyOf": [{ "enum": known }, other] });
    }
    let pattern = parameter.validations.iter().find_map(|validation| match validation {
        // JSON Schema uses a different syntax for groups with flags.
        Validation::Matches(pattern) if !pattern.contains("(?") && !pattern.contains(r"\z") => Some(pattern.as_str()),
        _ => None,
    });
    typed(SCALARS, pattern, mandatory)
}

fn strings(texts: &[Str]) -> Vec<Value> {
    texts.iter().map(|text| json!(text.as_str())).collect()
}

fn reference_pattern(parameter: &Parameter) -> String {
    let roots = parameter.validations.iter().find_map(|validation| match validation {
        Validation::Within(roots) => Some(roots),
        _ => None,
    });
    let below = r"([.\[].*)?";
    match roots {
        Some(roots) => {
            let roots = roots.iter().map(|root| regex::escape(root)).collect::<Vec<_>>().join("|");
            // A payload has only the parts `Before` and `After`.
            format!(r#"^\s*(?!\.Payload[.\[]"?(?![Bb]efore|[Aa]fter))({roots}){below}\s*$"#)
        }
        None => {
            let side = r#"(\.|\[")([Bb]efore|[Aa]fter)(["\].\[].*)?"#;
            format!(
                r"^\s*\$?(\.?|\.([Pp]osition|[Oo]peration|[Mm]etadata{below}|[Kk]ey{below}|[Pp]ayload({side})?))\s*$"
            )
        }
    }
}
