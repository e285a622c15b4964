//! Everything that is printed for people goes through here, and so nothing that a record, a plugin or a server says can
//! give a terminal orders.
//!
//! Control characters, bidirectional overrides and zero-width characters are printed as `\u{1b}`; line feeds and tabs
//! stay, since the layout is ours. Styles of ours are marked in the text with a number that is drawn at the start of the
//! process and that nothing from outside can know; the marks become escape sequences when the text is printed.

mod escape;
mod status;
mod stream;
mod style;

pub use escape::{is_unsafe, json_text, shown};
pub use status::{StatusLine, age, short, size};
pub use stream::{Stream, columns, data, is_terminal, print, print_json};
pub use style::{Style, adopt};
