//! Regular expressions that the engine rejects.

use boa_engine::Source;
use boa_engine::ast::scope::Scope;
use boa_engine::interner::Interner;
use boa_engine::parser::lexer::error::Error as LexError;
use boa_engine::parser::{Error, Parser};

/// Characters that end a literal.
const OF_LITERALS: [char; 3] = ['/', '\n', '\r'];

/// Returns the reason why `new RegExp(text, flags)` fails. The parser checks a literal with this content.
pub(super) fn error(text: &str, flags: &str) -> Option<String> {
    if text.is_empty()
        || !text.is_ascii()
        || text.contains(OF_LITERALS)
        || !flags.chars().all(|flag| flag.is_ascii_alphabetic())
    {
        return None;
    }
    // `/*` begins a comment.
    let body = if text.starts_with('*') { format!("(?:{text})") } else { text.to_owned() };
    let script = format!("/{body}/{flags}");
    let parsed =
        Parser::new(Source::from_bytes(script.as_bytes())).parse_script(&Scope::new_global(), &mut Interner::default());
    match parsed.err()? {
        Error::Lex { err: LexError::Syntax(message, _) } => {
            let why = message.strip_prefix("Invalid regular expression literal: ").unwrap_or(&message);
            Some(format!("this is not a valid regular expression: {why}"))
        }
        _ => None,
    }
}
