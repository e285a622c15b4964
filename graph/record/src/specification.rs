//! Specifications of connectors and processors: name, documentation and parameters. Declared once per kind, they drive
//! parsing, error messages, listings, generated files and documentation. Plugins that are built in and processors in
//! WebAssembly declare the same type.

use crate::text::Str;

/// Name, documentation and parameters of a plugin in one role.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    /// Name in pipeline files, without prefix: `generator`, `field.set`.
    pub name: Str,
    /// Semantic version, `v0.1.0`.
    pub version: Str,
    /// One line, beginning with a verb in the third person.
    pub summary: Str,
    /// Several sentences; may contain Markdown.
    pub description: Str,
    /// The maintainer.
    pub author: Str,
    /// The parameters, in display order.
    pub parameters: Vec<Parameter>,
}

impl Specification {
    /// Creates the specification of a built-in plugin without parameters.
    pub fn builtin(name: &'static str, summary: &'static str) -> Self {
        Specification {
            name: Str::from_static(name),
            version: Str::from_static(concat!("v", env!("CARGO_PKG_VERSION"))),
            summary: Str::from_static(summary),
            description: Str::from_static(summary),
            author: Str::from_static("Anabranch"),
            parameters: Vec::new(),
        }
    }

    /// Creates the specification of a plugin of another crate, without parameters. `version` is a semantic version, such
    /// as `env!("CARGO_PKG_VERSION")`.
    pub fn new(name: &'static str, version: &'static str, summary: &'static str) -> Self {
        let version = match version.starts_with('v') {
            true => Str::from_static(version),
            false => Str::from(format!("v{version}")),
        };
        Specification { version, author: Str::default(), ..Self::builtin(name, summary) }
    }

    /// Sets the author.
    #[must_use]
    pub fn by(mut self, author: &'static str) -> Self {
        self.author = Str::from_static(author);
        self
    }

    /// Sets a longer description.
    #[must_use]
    pub fn describe(mut self, description: &'static str) -> Self {
        self.description = Str::from_static(description);
        self
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Adds several parameters, for example those that several plugins share.
    #[must_use]
    pub fn with_all(mut self, parameters: Vec<Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// Returns the parameter for the name of a setting: by exact name, alias, or `*` pattern.
    pub fn parameter(&self, setting: &str) -> Option<&Parameter> {
        let exact = |p: &&Parameter| p.name == *setting || p.aliases.iter().any(|a| *a == *setting);
        self.parameters
            .iter()
            .find(exact)
            .or_else(|| self.parameters.iter().find(|p| matches_pattern(&p.name, setting)))
    }
}

/// Returns `true` if `name` matches `pattern`. A part `*` matches one part between dots; as the last part it matches
/// the rest of the name.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    if !pattern.contains('*') {
        return pattern == name;
    }
    let (mut pattern, mut rest) = (pattern.split('.').peekable(), Some(name));
    while let Some(wanted) = pattern.next() {
        let Some(name) = rest else { return false };
        if wanted == "*" && pattern.peek().is_none() {
            return !name.is_empty();
        }
        let (part, after) = name.split_once('.').map_or((name, None), |(part, after)| (part, Some(after)));
        if wanted != part && (wanted != "*" || part.is_empty()) {
            return false;
        }
        rest = after;
    }
    rest.is_none()
}

/// A parameter of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name; a part `*` stands for any one part (`collections.*.operations`), as the last part for all remaining ones
    /// (`headers.*`).
    pub name: Str,
    /// The type of the value.
    pub kind: ParameterKind,
    /// Value of an absent or blank setting.
    pub default: Option<Str>,
    /// Effect and unit, in one or two sentences.
    pub description: Str,
    /// Additional rules.
    pub validations: Vec<Validation>,
    /// True if the value is a credential: it is masked wherever values are displayed.
    pub secret: bool,
    /// Alternative names.
    pub aliases: Vec<Str>,
    /// True if a blank text is a valid value.
    pub blank: bool,
    /// Initial value in generated files, for a parameter of which one of several is needed.
    pub example: Option<Str>,
    /// A parameter that must be set, and not be `false` or zero, for this one to have an effect.
    pub only_with: Option<Str>,
    /// True if a text that contains `{{` is a template over the record.
    pub templates: bool,
}

impl Parameter {
    /// Returns `true` if the value of a setting of this parameter is a credential: the parameter is secret, or it
    /// accepts any header (`headers.*`), environment variable (`environment.*`) or member of a configuration (`config.*`),
    /// and a part of the name in place of the star suggests a credential.
    pub fn is_secret(&self, setting: &str) -> bool {
        const OPEN: [&str; 3] = ["headers.*", "environment.*", "config.*"];
        let is_open = OPEN.iter().filter_map(|open| self.name.strip_suffix(*open)).any(|start| {
            // Not another name with the same end.
            start.is_empty() || start.ends_with('.')
        });
        let before_star = self.name.matches('.').count();
        self.secret || (is_open && setting.trim().split('.').skip(before_star).any(names_a_credential))
    }

    /// Creates an optional parameter without a default.
    pub fn new(name: &'static str, kind: ParameterKind, description: &'static str) -> Self {
        Parameter {
            name: Str::from_static(name),
            kind,
            default: None,
            description: Str::from_static(description),
            validations: Vec::new(),
            secret: false,
            aliases: Vec::new(),
            blank: false,
            example: None,
            only_with: None,
            templates: false,
        }
    }

    /// Sets the initial value in generated files.
    #[must_use]
    pub fn example(mut self, value: &'static str) -> Self {
        self.example = Some(Str::from_static(value));
        self
    }

    /// Accepts a blank text as a value, if it is written explicitly: `value: ""`.
    #[must_use]
    pub fn may_be_blank(mut self) -> Self {
        self.blank = true;
        self
    }

    /// Accepts a template in place of the text.
    #[must_use]
    pub fn takes_templates(mut self) -> Self {
        self.templates = true;
        self
    }

    /// Declares that the parameter has an effect only if another parameter of the plugin is on.
    #[must_use]
    pub fn only_with(mut self, other: &'static str) -> Self {
        self.only_with = Some(Str::from_static(other));
        self
    }

    /// Sets the default.
    #[must_use]
    pub fn default_value(mut self, default: &'static str) -> Self {
        self.default = Some(Str::from_static(default));
        self
    }

    /// Makes the parameter required.
    #[must_use]
    pub fn required(self) -> Self {
        self.validate(Validation::Required)
    }

    /// Adds a rule.
    #[must_use]
    pub fn validate(mut self, validation: Validation) -> Self {
        self.validations.push(validation);
        self
    }

    /// Restricts a number to values greater than `bound`.
    #[must_use]
    pub fn greater_than(self, bound: f64) -> Self {
        self.validate(Validation::GreaterThan(bound))
    }

    /// Restricts a number to values less than `bound`.
    #[must_use]
    pub fn less_than(self, bound: f64) -> Self {
        self.validate(Validation::LessThan(bound))
    }

    /// Restricts the value to the given texts.
    #[must_use]
    pub fn one_of(self, texts: &[&'static str]) -> Self {
        self.validate(Validation::OneOf(statics(texts)))
    }

    /// Forbids the given texts.
    #[must_use]
    pub fn none_of(self, texts: &[&'static str]) -> Self {
        self.validate(Validation::NotOneOf(statics(texts)))
    }

    /// Restricts a reference to parts of a record.
    #[must_use]
    pub fn within(self, roots: &[&'static str]) -> Self {
        self.validate(Validation::Within(statics(roots)))
    }

    /// Restricts the value to texts with a match of a regular expression.
    #[must_use]
    pub fn regex(self, pattern: &'static str) -> Self {
        self.validate(Validation::Matches(Str::from_static(pattern)))
    }

    /// Marks the value as a credential.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Adds alternative names.
    #[must_use]
    pub fn aliases(mut self, aliases: &[&'static str]) -> Self {
        self.aliases.extend(statics(aliases));
        self
    }

    /// Returns `true` if the parameter is required.
    pub fn is_required(&self) -> bool {
        self.validations.contains(&Validation::Required)
    }
}

/// Returns `true` if a header, query parameter or member of an object contains a credential, judged by its name:
/// `X-Auth-Token`, `api_key`, `privateKey`. The name of an address, a path or a type, such as `token_url`, does not count.
/// O(length).
pub fn names_a_credential(name: &str) -> bool {
    const WHOLE: [&str; 6] = ["authorization", "proxyauthorization", "cookie", "sig", "bearer", "creds"];
    const PARTS: [&str; 10] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "apikey",
        "accesskey",
        "authkey",
        "privatekey",
        "credential",
    ];
    const OTHER: [&str; 6] = ["url", "uri", "endpoint", "path", "file", "type"];
    let mut name = name.to_ascii_lowercase();
    name.retain(|c| !matches!(c, '-' | '_'));
    let is_one = || PARTS.iter().any(|part| name.contains(part)) && !OTHER.iter().any(|end| name.ends_with(end));
    WHOLE.contains(&name.as_str()) || is_one() || name.ends_with("subscriptionkey")
}

fn statics(texts: &[&'static str]) -> Vec<Str> {
    texts.iter().map(|text| Str::from_static(text)).collect()
}

/// The type of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// Any text.
    Text,
    /// An integer, base 10.
    Int,
    /// A floating-point number.
    Float,
    /// One of `1 t T TRUE true True 0 f F FALSE false False`.
    Bool,
    /// A duration such as `1h2m3.5s`, `100ms`.
    Duration,
    /// A number of bytes such as `64MiB`, `1000`.
    Bytes,
    /// Texts separated by commas.
    List,
    /// A reference to a part of the record, such as `.Payload.After.name`.
    Reference,
    /// A template over the record; text without `{{` is literal.
    Template,
    /// Path of a file.
    File,
}

impl ParameterKind {
    /// Returns the name, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            ParameterKind::Text => "text",
            ParameterKind::Int => "int",
            ParameterKind::Float => "float",
            ParameterKind::Bool => "bool",
            ParameterKind::Duration => "duration",
            ParameterKind::Bytes => "bytes",
            ParameterKind::List => "list",
            ParameterKind::Reference => "reference",
            ParameterKind::Template => "template",
            ParameterKind::File => "file",
        }
    }
}

impl serde::Serialize for ParameterKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A rule beyond the type.
#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    /// Must be set and not blank.
    Required,
    /// A number greater than this.
    GreaterThan(f64),
    /// A number less than this.
    LessThan(f64),
    /// One of these texts (for lists: each item).
    OneOf(Vec<Str>),
    /// None of these texts.
    NotOneOf(Vec<Str>),
    /// Text that contains a match of this regular expression.
    Matches(Str),
    /// A reference that starts with one of these (`.Key`, `.Payload`), such as `.Payload.After.x`.
    Within(Vec<Str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_begin_with_a_v() {
        for version in ["1.2.0", "v1.2.0"] {
            assert_eq!(Specification::new("a", version, "Does it.").version, "v1.2.0");
        }
    }

    #[test]
    fn a_star_stands_for_one_part() {
        assert!(matches_pattern("collections.*.format.options.*", "collections.users.format.options.id"));
        assert!(!matches_pattern("collections.*.operations", "collections.a.b.operations"));
        assert!(matches_pattern("headers.*", "headers.x.y"));
        assert!(!matches_pattern("headers.*", "headers."));
        assert!(!matches_pattern("headers.*", "headers"));
        assert!(matches_pattern("*", "anything.at.all"));
        assert!(matches_pattern("path", "path"));
    }
}
