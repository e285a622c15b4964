//! Settings that are taken as they are written, though they look like something that is filled in, and the other way
//! round.

mod path_part;

use std::ops::Range;

use anabranch_plugin::diagnostic::{Diagnostic, Diagnostics};
use anabranch_plugin::format::OPTIONS;
use anabranch_plugin::settings::Settings;
use anabranch_plugin::specification::{ParameterKind, Specification};
use anabranch_plugin::written::Written;
use anabranch_record::access::Access;
use anabranch_template::{MissingKey, Template, slips};

/// Warns of templates and variables where there are none, and of quotes and blanks that are part of a text. What
/// plugins from elsewhere make of their settings is not known.
pub(super) fn find(specification: &Specification, settings: &Settings) -> Diagnostics {
    let mut findings = Diagnostics::new();
    if specification.author != *"Anabranch" {
        return findings;
    }
    for setting in &settings.entries {
        let name = setting.name.value.trim();
        let Some(parameter) = specification.parameter(name).filter(|parameter| !parameter.secret) else { continue };
        if parameter.kind == ParameterKind::Template || name == OPTIONS {
            findings.0.extend(out_of_a_variable(name, &setting.value));
        }
        let is_file = parameter.kind == ParameterKind::File;
        let is_text = matches!(parameter.kind, ParameterKind::Text | ParameterKind::File | ParameterKind::Template);
        if name == OPTIONS {
            let found = line_feed(name, &setting.value);
            findings.0.extend(found.map(|finding| finding.with_span(setting.value.span())));
        }
        if !is_text || matches!(name, OPTIONS | "script") {
            continue;
        }
        let found = quotes(name, &setting.value, is_file)
            .or_else(|| line_feed(name, &setting.value))
            .or_else(|| dates(name, &setting.value, is_file))
            .or_else(|| url_part(name, &setting.value));
        let found = found.or_else(|| match parameter.kind {
            ParameterKind::Template => None,
            _ => placeholder(name, &setting.value, is_file)
                .or_else(|| template(name, &setting.value, is_file))
                .or_else(|| if is_file { path_part::find(name, &setting.value) } else { None })
                .or_else(|| if is_file { home(name, &setting.value) } else { None })
                .or_else(|| if is_file { blank(name, &setting.value) } else { None }),
        });
        findings.0.extend(found.map(|finding| finding.with_span(setting.value.span())));
    }
    findings
}

/// Warns of a variable whose value holds a template: it is evaluated, whoever set the variable. The value is not shown.
pub(super) fn out_of_a_variable(name: &str, written: &Written) -> Option<Diagnostic> {
    written.substituted().any(|value| value.contains("{{")).then(|| {
        let message =
            format!("the value of a variable in {name} holds a template, which is evaluated for every record");
        Diagnostic::warning("settings.template_in_variable", message)
            .with_span(written.span())
            .with_hint("write the template in the file; for the two braces themselves, {{ \"{{\" }}")
    })
}

/// The quotes of a word processor around a whole text.
fn quotes(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    // A text may be meant to have them.
    let inner = slips::between_curly_quotes(text).filter(|inner| is_file || inner.contains("{{"))?;
    let message = format!("{name}: its quotes are part of the text, as YAML has straight quotes");
    let finding = Diagnostic::warning("settings.curly_quotes", message);
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

/// A line feed at the end, as a block of YAML has one.
fn line_feed(name: &str, written: &Written) -> Option<Diagnostic> {
    let text = written.written();
    let of = match name {
        "value" => "of what is set",
        "request.body" => "of the body",
        // The line that is written has one of its own.
        OPTIONS if text.contains("{{") => "of each line, so that an empty line follows it",
        _ => return None,
    };
    let line = text.strip_suffix('\n')?;
    // Of several lines, as in a letter, the last may be meant to end.
    if line.is_empty() || (name != OPTIONS && line.contains('\n')) {
        return None;
    }
    let message = format!("{name}: the line feed at the end is part {of}");
    Some(Diagnostic::warning("settings.line_feed", message).with_hint("write |- in place of |, which leaves it out"))
}

/// A date as other tools fill it in.
fn dates(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    let fills = matches!(name, "folder" | "table");
    if !(is_file || fills || name == "prefix") {
        return None;
    }
    let parts = ["%Y", "%m", "%d", "%H", "%M"].into_iter().filter(|part| text.contains(part)).collect::<Vec<_>>();
    let first = parts.first().filter(|first| **first == "%Y" || parts.len() > 1)?;
    let message = format!("{name}: {first} is taken as it is written: no date is filled in");
    let hint = match fills {
        true => "write a template, as {{ now | date \"2006-01-02\" }}",
        false => "write the text itself; templates are values as that of field.set and the folder of an s3 destination",
    };
    Some(Diagnostic::warning("settings.not_a_template", message).with_hint(hint))
}

/// A part of a URL as other tools fill it in: `/{name}`, `/:name`.
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
    let message = format!("{name}: {part} is taken as it is written");
    Some(
        Diagnostic::warning("settings.not_a_template", message)
            .with_hint(format!("write {{{{ .Payload.After.{inner} }}}}, or the field that is meant")),
    )
}

/// Whether the value of a secret setting is a variable as a shell has it, without braces.
pub(super) fn is_bare_variable(text: &str) -> bool {
    text.trim().strip_prefix('$').is_some_and(is_name)
}

/// A variable as other tools have it.
fn placeholder(name: &str, written: &Written, is_file: bool) -> Option<Diagnostic> {
    let text = written.written();
    let (at, variable) = variable(text, is_file)?;
    let piece = &text[at];
    let message = format!("{name}: {piece} is taken as it is written: variables have braces");
    let finding = Diagnostic::warning("settings.not_a_variable", message).with_hint(format!("write ${{{variable}}}"));
    Some(finding.with_fix(written.span(), piece, format!("${{{variable}}}")))
}

/// An action that reads something of the record; in a path, any.
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
        let message = format!("{name} is not a template: the braces are taken as they are written");
        let finding = Diagnostic::warning("settings.not_a_template", message);
        match filled_in(inner) {
            Some(word) => finding.with_hint(format!(
                "write the text itself, or `${{{}}}` for a variable of the environment",
                word.to_ascii_uppercase().replace(['.', '-'], "_")
            )),
            None => {
                finding.with_hint("write the text itself; templates are values as that of field.set, and conditions")
            }
        }
    })
}

/// The name in `name }}`, which other tools fill in from their own variables.
fn filled_in(inner: &str) -> Option<&str> {
    let word = inner.split_once("}}")?.0.trim_matches(['-', ' ']);
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    is_word.then_some(word)
}

/// `~/out.txt`, which only a shell replaces.
fn home(name: &str, written: &Written) -> Option<Diagnostic> {
    let rest = written.written().strip_prefix("~/")?;
    let message = format!("{name}: `~` is not replaced here, as a shell would");
    let finding = Diagnostic::warning("settings.not_a_variable", message);
    Some(finding.with_hint(format!("write ${{HOME}}/{rest}")).with_fix(written.span(), "~/", "${HOME}/"))
}

/// A path with a blank before or behind it.
fn blank(name: &str, written: &Written) -> Option<Diagnostic> {
    let (text, trimmed) = (written.written(), written.written().trim());
    (trimmed.len() < text.len() && !trimmed.is_empty()).then(|| {
        let message = format!("{name}: a blank before or behind {trimmed:?} is part of the path");
        Diagnostic::warning("settings.blank_around", message).with_hint("remove the blank").with_fix(
            written.span(),
            text.as_str(),
            trimmed,
        )
    })
}

/// A variable that is not written as here, and its name.
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
    // A dollar sign alone is one in any other text.
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

/// Whether it is a name as those of variables are: in capitals.
fn is_name(name: &str) -> bool {
    name.len() > 1 && name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(is_name_character)
}
