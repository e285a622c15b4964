//! Variables in values: `${NAME}`, `${NAME:-default}`, `${file:PATH}`.

use std::collections::HashMap;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics, Span};
use anabranch_plugin::written::{Content, Rewriting, TextMapping, Written};
use anabranch_record::text::Str;

use super::Variables;
use super::literals::Literals;
use super::quote::quoted;
use crate::codes;

/// Maximum length of `${...}` in bytes. Keeps the search for its end linear, since a script may contain many opening
/// braces.
const MAX_EXPRESSION_BYTES: usize = 4096;

/// Meaning of `${...}` in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// A variable; anything else is an error.
    Value,
    /// A variable, or an expression in the language of the script.
    Script,
}

/// Looks up variables and reads each file once.
pub(super) struct Resolver<'a> {
    variables: &'a dyn Variables,
    files: HashMap<String, Result<Str, String>>,
}

/// A text with its variables replaced.
pub(super) struct Interpolated {
    pub(super) text: Written,
    /// True if the whole text was a single `${...}`.
    pub(super) whole: bool,
    /// Warnings about text that the author probably did not intend.
    pub(super) warnings: Diagnostics,
}

enum Expression<'t> {
    Variable { name: &'t str, default: Option<&'t str> },
    File(&'t str),
    Foreign,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(variables: &'a dyn Variables) -> Self {
        Resolver { variables, files: HashMap::new() }
    }

    /// Returns the script that a setting refers to.
    pub(super) fn script(&self, path: &str, pipeline_file: &str) -> Content {
        self.variables.script(path, pipeline_file)
    }

    /// Replaces the variables of a scalar.
    ///
    /// Variables within the replacement text are not replaced.
    pub(super) fn interpolate(
        &mut self,
        text: &Str,
        span: Span,
        layout: Option<TextMapping>,
        dialect: Dialect,
    ) -> Result<Interpolated, Diagnostics> {
        if !text.contains("${") {
            let text = Written::with_layout(text.clone(), text.clone(), span, layout);
            return Ok(Interpolated { text, whole: false, warnings: Diagnostics::new() });
        }
        let mut rewriting = Rewriting::of(layout, text.len(), span);
        let (mut findings, mut warnings) = (Diagnostics::new(), Diagnostics::new());
        let mut literals = Literals::of(text);
        let mut value = String::with_capacity(text.len());
        let (mut kept, mut whole) = (0, false);
        while let Some(open) = text[kept..].find("${").map(|at| at + kept) {
            let escaped = open > kept && text.as_bytes()[open - 1] == b'$';
            let plain_end = if escaped { open - 1 } else { open };
            rewriting.keep(kept..plain_end, value.len());
            value.push_str(&text[kept..plain_end]);
            if escaped {
                rewriting.replace(plain_end..open + 2, value.len(), 2);
                value.push_str("${");
                kept = open + 2;
                continue;
            }
            let reach = text.len().min(open + MAX_EXPRESSION_BYTES);
            let Some(close) = text.as_bytes()[open..reach].iter().position(|b| *b == b'}').map(|at| at + open) else {
                if dialect == Dialect::Value {
                    let place = rewriting.place(open..open + 2, span.file, span);
                    findings.push(
                        Diagnostic::error(codes::CONFIG_VARIABLE_INVALID, "`${` has no closing `}`")
                            .with_label(place, "opened here")
                            .with_hint("write `$${` for the two characters themselves"),
                    );
                }
                kept = open;
                break;
            };
            let range = open..close + 1;
            let expression = parse(&text[open + 2..close]);
            if dialect == Dialect::Script && matches!(expression, Expression::Foreign) {
                // Continue within the braces, since the expression may contain a variable.
                rewriting.keep(open..open + 2, value.len());
                value.push_str("${");
                kept = open + 2;
                continue;
            }
            let place = rewriting.place(range.clone(), span.file, span);
            let is_of_script = dialect == Dialect::Script && literals.holds(open);
            match self.evaluate(&expression, &text[range.clone()], place) {
                Ok((replacement, foreign)) => {
                    if is_of_script && matches!(expression, Expression::Variable { default: None, .. }) {
                        warnings.push(of_environment(&text[range.clone()], place));
                    }
                    whole = range == (0..text.len());
                    rewriting.replace(range.clone(), value.len(), replacement.len());
                    value.push_str(&replacement);
                    if foreign {
                        rewriting.substitute(replacement);
                    }
                }
                Err(finding) if is_of_script => {
                    let written = &text[range.clone()];
                    let hint = format!("write `${written}` for an expression of the script, or set the variable");
                    findings.push(finding.with_hint(hint).with_fix(place, written, format!("${written}")));
                }
                Err(finding) => findings.push(*finding),
            }
            kept = range.end;
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        rewriting.keep(kept..text.len(), value.len());
        value.push_str(&text[kept..]);
        let text = Written::with_layout(value.into(), text.clone(), span, Some(rewriting.finish()));
        Ok(Interpolated { text, whole, warnings })
    }

    /// Returns the value of an expression, and `true` if the value comes from outside the file.
    fn evaluate(
        &mut self,
        expression: &Expression<'_>,
        written: &str,
        place: Span,
    ) -> Result<(Str, bool), Box<Diagnostic>> {
        let finding = match *expression {
            Expression::Variable { name, default } => {
                // As in a shell, the default also replaces an empty value.
                match (self.variables.variable(name).filter(|value| default.is_none() || !value.is_empty()), default) {
                    (Some(value), _) => return Ok((value.into(), true)),
                    (None, Some(default)) => return Ok((default.into(), false)),
                    (None, None) => Diagnostic::error(
                        codes::CONFIG_VARIABLE_UNSET,
                        format!("the environment variable {name} is not set"),
                    )
                    .with_hint(format!(
                        "set it, or write `${{{name}:-default}}` to have a default, or `$${{{name}}}` for the text itself"
                    )),
                }
            }
            Expression::File(path) => {
                let variables = self.variables;
                let content = self
                    .files
                    .entry(path.to_owned())
                    .or_insert_with(|| variables.file(path).map(|content| without_final_line_break(&content).into()));
                match content {
                    Ok(content) => return Ok((content.clone(), true)),
                    Err(why) => {
                        Diagnostic::error(codes::CONFIG_VARIABLE_FILE, format!("{path:?} cannot be read: {why}"))
                            .with_hint(format!(
                                "name a file that exists (a relative path starts at the working directory), or write \
                             `${written}` for the text itself"
                            ))
                    }
                }
            }
            Expression::Foreign => {
                Diagnostic::error(codes::CONFIG_VARIABLE_INVALID, format!("{} is not a variable", quoted(written)))
                    .with_hint(
                        "write `${NAME}`, `${NAME:-default}` or `${file:PATH}`, where NAME is letters, digits and `_`; \
                     or `$${` for the two characters themselves",
                    )
            }
        };
        Err(Box::new(finding.with_span(place)))
    }
}

/// Warns about an environment variable in a template literal, where the script language uses the same notation for
/// expressions.
fn of_environment(written: &str, place: Span) -> Diagnostic {
    let message =
        format!("`{written}` in a template literal is replaced by an environment variable before the script runs");
    Diagnostic::warning(codes::CONFIG_VARIABLE_IN_SCRIPT, message)
        .with_span(place)
        .with_hint(format!("write `${written}` for an expression of the script"))
        .with_fix(place, written, format!("${written}"))
}

/// Parses the text between `${` and `}`.
fn parse(inner: &str) -> Expression<'_> {
    if let Some(path) = inner.strip_prefix("file:") {
        return if path.trim().is_empty() || path.contains("${") {
            Expression::Foreign
        } else {
            Expression::File(path)
        };
    }
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    // A variable inside the default is not allowed, because it would end at the first brace.
    if is_name && !default.is_some_and(|default| default.contains("${")) {
        Expression::Variable { name, default }
    } else {
        Expression::Foreign
    }
}

/// Removes a final line break, which files of credentials usually have and which is not part of the credential.
fn without_final_line_break(content: &str) -> &str {
    let content = content.strip_suffix('\n').unwrap_or(content);
    content.strip_suffix('\r').unwrap_or(content)
}
