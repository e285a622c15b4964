//! Output for people. All of it goes through this module, so that no text from a record, a plugin or a server can
//! control the terminal.
//!
//! Control characters, bidirectional overrides and zero-width characters are printed as `\u{1b}`; line feeds and tabs
//! stay, because this program lays out the text. Styles are marked in the text with a random number that is drawn at
//! the start of the process, so that texts from outside cannot contain valid marks. The marks become escape sequences
//! when the text is printed.

mod escape;
mod quantity;
mod stream;
mod style;

pub use escape::{is_unsafe, json_text, shown};
pub use quantity::{age, short, size};
pub use stream::{Stream, columns, data, is_terminal, print, print_json};
pub use style::{Style, adopt};
