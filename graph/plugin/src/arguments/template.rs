//! Templates and conditions that do not compile.

use anabranch_record::code::Code;
use anabranch_record::text::Str;
use anabranch_template::{MissingKey, Template, TemplateError};

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::secret::expressions;
use crate::written::Written;

pub(crate) fn invalid_template(name: &Str, written: &Written, error: TemplateError) -> Diagnostic {
    let again = |text: &str| Template::parse(text, MissingKey::NoValue).err();
    not_compiled(codes::SETTINGS_INVALID_TEMPLATE, written, error, again, |error| match error {
        Some(message) => format!("{name}: {message}"),
        None => format!("{name}: the template does not compile once its variables are replaced"),
    })
}

/// Reports a text that does not compile, at the place of the error. The message of the error quotes parts of the text.
/// If the text contains substituted values, the message of `again` is used instead, which compiles the text without
/// them; if that succeeds, `message` receives `None`.
pub fn not_compiled(
    code: Code,
    written: &Written,
    error: TemplateError,
    again: impl FnOnce(&str) -> Option<TemplateError>,
    message: impl FnOnce(Option<&str>) -> String,
) -> Diagnostic {
    let place = written.place(error.offset, error.len);
    let correction = error.correction.clone();
    let (plain, bare) = without_variables(written.written());
    let error = if written.is_substituted() { again(&plain) } else { Some(error) };
    let hint = match (&error, bare) {
        (Some(error), _) => error.hint.clone(),
        (None, Some(bare)) => Some(format!("write a text in quotes: \"{bare}\"")),
        (None, None) => Some("check whether the value of a variable contains quotes or braces".to_owned()),
    };
    let message = message(error.as_ref().map(|error| error.message.as_str()));
    let finding = Diagnostic::error(code, message).with_span(place);
    let finding = match correction {
        Some((at, becomes)) => written.corrected(finding, at.start, at.len(), &becomes),
        None => finding,
    };
    match hint {
        Some(hint) => finding.with_hint(hint),
        None => finding,
    }
}

/// Replaces each variable in a template by a number, and returns the first variable in an action that is not quoted.
fn without_variables(written: &str) -> (String, Option<&str>) {
    let mut text = String::with_capacity(written.len());
    let (mut from, mut bare) = (0, None);
    for at in expressions(written) {
        let (before, after) = (&written[..at.start], &written[at.end..]);
        let is_apart = before.ends_with([' ', '(']) && after.starts_with([' ', ')', '}', '|']);
        let inside = before.rfind("{{").is_some_and(|open| !before[open..].contains("}}"));
        text.push_str(&written[from..at.start]);
        text.push('0');
        from = at.end;
        if is_apart && inside {
            bare = bare.or(Some(&written[at]));
        }
    }
    text.push_str(&written[from..]);
    (text, bare)
}
