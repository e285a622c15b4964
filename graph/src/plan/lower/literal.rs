//! Settings that are used literally although they look like a template or variable, and templates that come from a
//! variable.

mod path_part;

use std::ops::Range;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::format::OPTIONS;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::{ParameterKind, Specification};
use anabranch_plugin::written::Written;
use anabranch_record::access::Access;
use anabranch_template::{MissingKey, Template, slips};

use crate::codes;

/// Warns about templates and variables that are not evaluated, and about quotes and blanks that are part of the text.
/// Third-party plugins are not checked, because the use of their settings is unknown.
pub(super) fn find(specification: &Specification, settings: &Settings) -> Diagnostics {
    let mut findings = Diagnostics::new();
    if specification.author != *"Anabranch" {
        return findings;
    }
    for setting in &settings.entries {
        let name = setting.name.value.trim();
        let Some(parameter) = specification.parameter(name).filter(|parameter| !parameter.secret) else { continue };
        let is_template =
            parameter.kind == ParameterKind::Template || parameter.templates && setting.value.written().contains("{{");
        if is_template || name == OPTIONS {
            findings.0.extend(out_of_a_variable(name, &setting.value));
        }
        let is_file = parameter.kind == ParameterKind::File;
        let is_text = matches!(parameter.kind, ParameterKind::Text | ParameterKind::File | ParameterKind::Template);
        if name == OPTIONS {
            let found = line_feed(name, &setting.value);
            findings.0.extend(found.map(|finding| finding.with_span(setting.value.span())));
        }
        if !is_text || matches!(name, OPTIONS | "script" | "program") {
            continue;
        }
        let found = quotes(name, &setting.value, is_file)
            .or_else(|| line_feed(name, &setting.value))
            .or_else(|| dates(name, &setting.value, is_file))
            .or_else(|| url_part(name, &setting.value));
        let found = found.or_else(|| match is_template {
            true if parameter.templates => placeholder(name, &setting.value, is_file),
            true => None,
            false => placeholder(name, &setting.value, is_file)
                .or_else(|| template(name, &setting.value, is_file))
                .or_else(|| if is_file { path_part::find(name, &setting.value) } else { None })
                .or_else(|| if is_file { home(name, &setting.value) } else { None })
                .or_else(|| if is_file { blank(name, &setting.value) } else { None }),
        });
        findings.0.extend(found.map(|finding| finding.with_span(setting.value.span())));
    }
    findings
}

/// Warns if the value of a variable holds a template, because the template is evaluated whatever its origin. The value
/// is not displayed.
pub(super) fn out_of_a_variable(name: &str, written: &Written) -> Option<Diagnostic> {
    written.substituted().any(|value| value.contains("{{")).then(|| {
        let message =
            format!("the value of a variable in {name} contains a template, which is evaluated for every record");
        Diagnostic::warning(codes::SETTINGS_TEMPLATE_IN_VARIABLE, message)
            .with_span(written.span())
            .with_hint("write the template in the file; for two literal braces, write {{ \"{{\" }}")
    })
}

/// Finds typographic quotes around a whole text.
fn quotes(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    // In other texts the quotes may be intended.
    let inner = slips::between_curly_quotes(text).filter(|inner| is_file || inner.contains("{{"))?;
    let message = format!("{name}: its quotes are a part of the text, because YAML has straight quotes");
    let finding = Diagnostic::warning(codes::SETTINGS_CURLY_QUOTES, message);
    Some(match inner.contains('\'') {
        true => finding.with_hint("put straight quotes around the text"),
        false => {
            let becomes = format!("'{inner}'");
            let span = written.span();
            let is_plain = (span.end - span.start) as usize == text.len();
            let finding = finding.with_hint(format!("write {becomes} with straight quotes"));
            if is_plain { finding.with_fix(span, text.as_str(), becomes) } else { finding }
        }
    })
}

/// Finds a line feed at the end, which a YAML block scalar adds.
fn line_feed(name: &str, written: &Written) -> Option<Diagnostic> {
    let text = written.written();
    let of = match name {
        "value" => "of the value",
        "request.body" => "of the body",
        // Each written line already ends with a line feed.
        OPTIONS if text.contains("{{") => "of each line, so that an empty line follows it",
        _ => return None,
    };
    let line = text.strip_suffix('\n')?;
    // In a text of several lines, the final line feed may be intended.
    if line.is_empty() || (name != OPTIONS && line.contains('\n')) {
        return None;
    }
    let message = format!("{name}: the line feed at the end is part {of}");
    Some(Diagnostic::warning(codes::SETTINGS_LINE_FEED, message).with_hint("write |- instead of | to remove it"))
}

/// Finds a date placeholder of other tools.
fn dates(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    let fills = matches!(name, "folder" | "table");
    if !(is_file || fills || name == "prefix") {
        return None;
    }
    let parts = ["%Y", "%m", "%d", "%H", "%M"].into_iter().filter(|part| text.contains(part)).collect::<Vec<_>>();
    let first = parts.first().filter(|first| **first == "%Y" || parts.len() > 1)?;
    let message = format!("{name}: {first} is literal text: no date replaces it");
    let hint = match fills {
        true => "write a template, for example {{ now | date \"2006-01-02\" }}",
        false => {
            "write the text itself; settings such as the value of field.set and the folder of an s3 destination \
             accept templates"
        }
    };
    Some(Diagnostic::warning(codes::SETTINGS_NOT_A_TEMPLATE, message).with_hint(hint))
}

/// Finds a URL path parameter of other tools: `/{name}`, `/:name`.
fn url_part(name: &str, written: &Written) -> Option<Diagnostic> {
    if name != "request.url" {
        return None;
    }
    let path = written.written().split_once("://")?.1;
    let is_name = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_word = |text: &str| is_name(text) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let part = path.split(['/', '?', '&', '=']).skip(1).find_map(|part| {
        let inner = part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        inner.or_else(|| part.strip_prefix(':')).filter(|inner| is_word(inner)).map(|inner| (part, inner))
    });
    let (part, inner) = part?;
    let message = format!("{name}: {part} is literal text");
    Some(
        Diagnostic::warning(codes::SETTINGS_NOT_A_TEMPLATE, message)
            .with_hint(format!("write {{{{ .Payload.After.{inner} }}}}, or another field")),
    )
}

/// Returns `true` if the value of a secret setting is a shell variable without braces.
pub(super) fn is_bare_variable(text: &str) -> bool {
    text.trim().strip_prefix('$').is_some_and(is_name)
}

/// Finds a variable in the syntax of other tools.
fn placeholder(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    let (at, variable) = variable(text, is_file)?;
    let piece = &text[at];
    let message = format!("{name}: {piece} is literal text: variables have braces");
    let finding =
        Diagnostic::warning(codes::SETTINGS_NOT_A_VARIABLE, message).with_hint(format!("write ${{{variable}}}"));
    Some(finding.with_fix(written.span(), piece, format!("${{{variable}}}")))
}

/// Finds an action that reads from the record; in a path, any action.
fn template(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    let (_, inner) = text.split_once("{{")?;
    let is_template = match is_file {
        true => inner.contains("}}"),
        false => {
            let reads = Template::parse(text, MissingKey::NoValue)
                .is_ok_and(|template| template.literal().is_none() && template.reads() != Access::NOTHING);
            reads || filled_in(inner).is_some()
        }
    };
    is_template.then(|| {
        let message = format!("{name} is not a template: the braces are literal text");
        let finding = Diagnostic::warning(codes::SETTINGS_NOT_A_TEMPLATE, message);
        match filled_in(inner) {
            Some(word) => finding.with_hint(format!(
                "write the text itself, or `${{{}}}` for an environment variable",
                word.to_ascii_uppercase().replace(['.', '-'], "_")
            )),
            None => finding.with_hint(
                "write the text itself; conditions and settings such as the value of field.set accept templates",
            ),
        }
    })
}

/// Returns the name in `name }}`, a variable in the syntax of other tools.
fn filled_in(inner: &str) -> Option<&str> {
    let word = inner.split_once("}}")?.0.trim_matches(['-', ' ']);
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    is_word.then_some(word)
}

/// Finds `~/`, which only a shell replaces.
fn home(name: &str, written: &Written) -> Option<Diagnostic> {
    let rest = written.written().strip_prefix("~/")?;
    let message = format!("{name}: `~` is not replaced here as in a shell");
    let finding = Diagnostic::warning(codes::SETTINGS_NOT_A_VARIABLE, message);
    Some(finding.with_hint(format!("write ${{HOME}}/{rest}")).with_fix(written.span(), "~/", "${HOME}/"))
}

/// Finds a path with a blank before or after it.
fn blank(name: &str, written: &Written) -> Option<Diagnostic> {
    let (text, trimmed) = (written.written(), written.written().trim());
    (trimmed.len() < text.len() && !trimmed.is_empty()).then(|| {
        let message = format!("{name}: a space before or after {trimmed:?} is part of the path");
        Diagnostic::warning(codes::SETTINGS_BLANK_AROUND, message).with_hint("remove the space").with_fix(
            written.span(),
            text.as_str(),
            trimmed,
        )
    })
}

/// Returns the range and the name of a variable in the syntax of other tools.
fn variable(text: &str, is_file: bool) -> Option<(Range<usize>, &str)> {
    let enclosed = |open: &str, close: &str| {
        let start = text.find(open)?;
        let inner = &text[start + open.len()..];
        let len = inner.find(close)?;
        let name = inner[..len].trim();
        Some((start..start + open.len() + len + close.len(), name))
    };
    let environment = |(at, inner): (Range<usize>, _)| {
        let inner: &str = inner;
        let name =
            ["env.", ".Env.", "$env:", "env ", "getenv ", "$"].iter().find_map(|start| inner.strip_prefix(start));
        let name = name.unwrap_or(inner).trim().trim_matches(['"', '\'']);
        is_name(name).then_some((at, name))
    };
    let in_braces = enclosed("{{", "}}").and_then(environment);
    let in_parentheses = || enclosed("$(", ")").and_then(environment);
    let behind_number_sign = || enclosed("#{", "}").and_then(environment);
    let between_percents = || enclosed("%", "%").filter(|(_, name)| is_file && is_name(name));
    // In texts other than paths, a single dollar sign is ordinary text.
    let alone = || {
        let start = text.find('$').filter(|_| is_file)?;
        let name = &text[start + 1..];
        let skipped = if name.starts_with("env:") { 4 } else { 0 };
        let name = &name[skipped..];
        let len = name.find(|c: char| !is_name_character(c)).unwrap_or(name.len());
        is_name(&name[..len]).then(|| (start..start + 1 + skipped + len, &name[..len]))
    };
    in_braces.or_else(in_parentheses).or_else(behind_number_sign).or_else(between_percents).or_else(alone)
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

/// Returns `true` if the text has the form of a variable name, in capitals.
fn is_name(name: &str) -> bool {
    name.len() > 1 && name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(is_name_character)
}
