//! What a connector or processor is and which parameters it takes: declared once per kind, it drives
//! parsing, error messages, listings, generated files and documentation.

pub mod shared;

use anabranch_record::text::Str;

/// Name, documentation and parameters of a plugin in one role.
#[derive(Clone, Debug, PartialEq)]
pub struct Specification {
    /// The name pipelines refer to it by, without prefix: `generator`, `field.set`.
    pub name: Str,
    /// Semantic version, `v0.1.0`.
    pub version: Str,
    /// One line.
    pub summary: Str,
    /// Several sentences; may hold Markdown.
    pub description: Str,
    /// Who maintains it.
    pub author: Str,
    /// Its parameters, in the order in which they are shown.
    pub parameters: Vec<Parameter>,
}

impl Specification {
    /// A specification of a built-in plugin without parameters.
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

    /// Adds a longer description.
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

    /// Adds several parameters, those of [`shared`] for instance.
    #[must_use]
    pub fn with_all(mut self, parameters: Vec<Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    /// The parameter that a setting name belongs to: an exact name, an alias, or a `*` pattern.
    pub fn parameter(&self, setting: &str) -> Option<&Parameter> {
        let exact = |p: &&Parameter| p.name == *setting || p.aliases.iter().any(|a| *a == *setting);
        self.parameters
            .iter()
            .find(exact)
            .or_else(|| self.parameters.iter().find(|p| matches_pattern(&p.name, setting)))
    }
}

/// Whether `name` fits `pattern`, where each part `*` stands for one part between dots, and a last one for all that
/// is left.
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

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name; a part `*` stands for any one part (`collections.*.operations`), a last one for all that follow
    /// (`headers.*`).
    pub name: Str,
    /// What the value must be.
    pub kind: ParameterKind,
    /// Value used where the setting is absent or blank.
    pub default: Option<Str>,
    /// What it does, its unit, in a sentence or two.
    pub description: Str,
    /// Further rules.
    pub validations: Vec<Validation>,
    /// Whether the value is a credential: masked wherever values are shown.
    pub secret: bool,
    /// Other names it is accepted under.
    pub aliases: Vec<Str>,
    /// Whether a text that is given as blank is a value like any other.
    pub blank: bool,
    /// Value to begin with where one of several parameters is needed: generated files set it.
    pub example: Option<Str>,
    /// The parameter without which it has no effect: that one must be given, and not be `false` or zero.
    pub only_with: Option<Str>,
}

impl Parameter {
    /// Whether the value of a setting of this parameter is a credential: as the parameter has it, and by the name of a
    /// header that any may be given of (`headers.*`).
    pub fn is_secret(&self, setting: &str) -> bool {
        let of_headers = || {
            let start = self.name.strip_suffix("headers.*")?;
            (start.is_empty() || start.ends_with('.')).then(|| setting.trim().rsplit('.').next()).flatten()
        };
        self.secret || of_headers().is_some_and(crate::secret::names_a_credential)
    }

    /// An optional parameter without default.
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
        }
    }

    /// Gives it a value to begin with.
    #[must_use]
    pub fn example(mut self, value: &'static str) -> Self {
        self.example = Some(Str::from_static(value));
        self
    }

    /// Takes a blank text as a value like any other, if it is written: `value: ""`.
    #[must_use]
    pub fn may_be_blank(mut self) -> Self {
        self.blank = true;
        self
    }

    /// Makes it one that has an effect only where another parameter of the plugin is on.
    #[must_use]
    pub fn only_with(mut self, other: &'static str) -> Self {
        self.only_with = Some(Str::from_static(other));
        self
    }

    /// Gives it a default.
    #[must_use]
    pub fn default_value(mut self, default: &'static str) -> Self {
        self.default = Some(Str::from_static(default));
        self
    }

    /// Makes it required.
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

    /// Restricts it to some texts.
    #[must_use]
    pub fn one_of(self, texts: &[&'static str]) -> Self {
        self.validate(Validation::OneOf(texts.iter().map(|t| Str::from_static(t)).collect()))
    }

    /// Marks the value as a credential.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Adds another name.
    #[must_use]
    pub fn alias(mut self, alias: &'static str) -> Self {
        self.aliases.push(Str::from_static(alias));
        self
    }

    /// Whether it must be given.
    pub fn is_required(&self) -> bool {
        self.validations.contains(&Validation::Required)
    }
}

/// The type of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// Any text.
    Text,
    /// An integer, base 10.
    Int,
    /// A floating-point number.
    Float,
    /// One of `1 t T TRUE true True 0 f F FALSE false False`.
    Bool,
    /// A span of time as `1h2m3.5s`, `100ms`.
    Duration,
    /// A number of bytes as `64MiB`, `1000`.
    Bytes,
    /// Texts separated by commas.
    List,
    /// A reference to a part of the record, `.Payload.After.name`.
    Reference,
    /// A template over the record; text without `{{` stands for itself.
    Template,
    /// Path of a file.
    File,
}

/// A rule beyond the type.
#[derive(Clone, Debug, PartialEq)]
pub enum Validation {
    /// Must be given and not blank.
    Required,
    /// A number above this.
    GreaterThan(f64),
    /// A number below this.
    LessThan(f64),
    /// One of these texts (for lists: each item).
    OneOf(Vec<Str>),
    /// None of these texts.
    NotOneOf(Vec<Str>),
    /// Text in which this regular expression matches somewhere.
    Matches(Str),
    /// A reference that starts with one of these (`.Key`, `.Payload`), as `.Payload.After.x` does.
    Within(Vec<Str>),
}

#[cfg(test)]
mod tests {
    use super::*;

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
