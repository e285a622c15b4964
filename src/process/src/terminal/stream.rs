//! Standard output and standard error.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use super::escape::{is_unsafe, json_text};
use super::style::rendered;

/// An output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
            Stream::Err => io::stderr().lock().write_all(bytes),
        }
    }
}

/// Returns `true` if the stream is a terminal.
pub fn is_terminal(stream: Stream) -> bool {
    match stream {
        Stream::Out => io::stdout().is_terminal(),
        Stream::Err => io::stderr().is_terminal(),
    }
}

/// Returns the number of columns of the terminal at standard output, or a default.
pub fn columns() -> u16 {
    let asked = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    if asked == 0 { 100 } else { asked.max(40) }
}

/// Prints text for people.
///
/// # Errors
/// Writing fails: the reader has closed the pipe, or the disk is full.
pub fn print(stream: Stream, text: &str) -> io::Result<()> {
    stream.write(rendered(text).as_bytes())
}

/// Prints JSON for programs. On a terminal, unsafe characters are escaped as JSON escapes.
///
/// # Errors
/// Like [`print`].
pub fn print_json(stream: Stream, json: &str) -> io::Result<()> {
    let json = if is_terminal(stream) { json_text(json) } else { Cow::Borrowed(json) };
    stream.write(json.as_bytes())
}

/// Returns a writer for data that programs read: records in JSON, output of templates. On a terminal, unsafe characters
/// are escaped.
pub fn data(stream: Stream) -> Box<dyn Write + Send> {
    match is_terminal(stream) {
        true => Box::new(Escaping { to: DataStream(stream), rest: Vec::new() }),
        false => Box::new(DataStream(stream)),
    }
}

struct DataStream(Stream);

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0 {
            Stream::Out => io::stdout().write(bytes),
            Stream::Err => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {
            Stream::Out => io::stdout().flush(),
            Stream::Err => io::stderr().flush(),
        }
    }
}

/// Escapes unsafe characters as JSON escapes.
struct Escaping<W> {
    to: W,
    /// The start of a character whose remaining bytes have not been written yet.
    rest: Vec<u8>,
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut out = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            out.push_str(&json_text(chunk.valid()));
            let broken = chunk.invalid();
            if broken.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && std::str::from_utf8(broken).is_err_and(|error| error.error_len().is_none()) {
                self.rest = broken.to_vec();
            } else {
                broken.iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
            }
        }
        debug_assert!(!out.contains(|c| is_unsafe(c) && !matches!(c, '\n' | '\t' | '\r')));
        self.to.write_all(out.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_give_no_orders_however_they_are_cut() {
        let text = "{\"a\":\"\u{9b}2J\u{202e}é\"}\n\x1b[2J\n".as_bytes();
        let mut whole = Vec::new();
        Escaping { to: &mut whole, rest: Vec::new() }.write_all(&[text, b"\x9b"].concat()).unwrap();
        assert_eq!(String::from_utf8(whole).unwrap(), "{\"a\":\"\\u009b2J\\u202eé\"}\n\\u001b[2J\n\\x9b");
        let mut cut = Vec::new();
        let mut writer = Escaping { to: &mut cut, rest: Vec::new() };
        text.iter().for_each(|byte| writer.write_all(&[*byte]).unwrap());
        drop(writer);
        assert_eq!(String::from_utf8(cut).unwrap(), "{\"a\":\"\\u009b2J\\u202eé\"}\n\\u001b[2J\n");
    }
}
