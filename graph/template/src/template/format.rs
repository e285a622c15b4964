//! Formatting like Go's `fmt` package: `print`, `println`, `printf` and the output of actions.

use super::functions::{CallError, Context};
use super::out::Out;
use super::val::{Elements, Kind, List, Map, Text, Val};

mod directive;
mod float;
mod integer;
mod quote;

pub(crate) use float::{Notation, format_float};
pub(crate) use quote::{is_printable, quote, runes};

/// Flags, width and precision of a directive.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    width: Option<usize>,
    precision: Option<usize>,
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    /// `%+v`: names of struct fields.
    plus_v: bool,
    /// `%#v`: Go syntax.
    sharp_v: bool,
}

/// Writes `val` like an action.
pub(crate) fn write_action(out: &mut Out, val: &Val) -> Result<(), CallError> {
    match val {
        Val::Missing | Val::Nil => out.push_str("<no value>"),
        Val::Text(text) => out.push_text(text),
        Val::Int(n) | Val::Int64(n) => out.push_str(itoa::Buffer::new().format(*n)),
        Val::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        other => Printer::new(out).argument(other, 'v')?,
    }
    Ok(())
}

/// `fmt.Sprint`: writes a space between operands if neither is a string.
pub(crate) fn print(out: &mut Out, args: &[Val]) -> Result<(), CallError> {
    let mut printer = Printer::new(out);
    let mut after_string = false;
    for (i, arg) in args.iter().enumerate() {
        let string = arg.kind() == Kind::String;
        if i > 0 && !string && !after_string {
            printer.out.push(' ');
        }
        printer.argument(arg, 'v')?;
        after_string = string;
    }
    Ok(())
}

/// `fmt.Sprintln`: always writes a space between operands, and a newline at the end.
pub(crate) fn println(out: &mut Out, args: &[Val]) -> Result<(), CallError> {
    let mut printer = Printer::new(out);
    for (i, arg) in args.iter().enumerate() {
        if i > 0 {
            printer.out.push(' ');
        }
        printer.argument(arg, 'v')?;
    }
    out.push('\n');
    Ok(())
}

/// `fmt.Sprintf`.
pub(crate) fn printf(out: &mut Out, format: &[u8], args: &[Val]) -> Result<(), CallError> {
    Printer::new(out).formatted(format, args)
}

/// Returns the text of `fmt.Sprint` for one value, for `toString` and messages.
pub(crate) fn to_text(val: &Val) -> Result<Text, CallError> {
    if let Val::Text(text) = val {
        return Ok(text.clone());
    }
    let mut out = Out::default();
    Printer::new(&mut out).argument(val, 'v')?;
    Ok(out.into_text())
}

struct Printer<'a> {
    out: &'a mut Out,
    flags: Flags,
    /// True while the value of a bad verb is printed; its methods are not called then.
    erroring: bool,
}

impl<'a> Printer<'a> {
    fn new(out: &'a mut Out) -> Self {
        Printer { out, flags: Flags::default(), erroring: false }
    }

    /// Writes one operand.
    fn argument(&mut self, val: &Val, verb: char) -> Result<(), CallError> {
        match (val, verb) {
            (Val::Missing | Val::Nil | Val::NoData, 'T' | 'v') => self.pad(b"<nil>"),
            (Val::Missing | Val::Nil | Val::NoData, _) => self.bad_verb(verb, None)?,
            (_, 'T') => self.string(val.type_name().as_bytes()),
            _ => self.value(val, verb, 0)?,
        }
        Ok(())
    }

    fn value(&mut self, val: &Val, verb: char, depth: usize) -> Result<(), CallError> {
        if depth > Context::MAX_DEPTH {
            return Err("a value is nested too deeply to be printed".into());
        }
        if self.out.len() > Context::MAX_BYTES {
            return Err("the printed value is too long".into());
        }
        if self.method(val, verb)? {
            return Ok(());
        }
        match val {
            Val::Missing | Val::Nil | Val::NoData => self.out.push_str("<nil>"),
            Val::Bool(b) if matches!(verb, 't' | 'v') => self.pad(if *b { b"true" } else { b"false" }),
            Val::Int(n) | Val::Int64(n) | Val::Duration(n) => {
                return self.integer(*n < 0, n.unsigned_abs(), true, verb, val);
            }
            Val::Operation(o) => return self.integer(false, *o as u64, true, verb, val),
            Val::Uint64(n) => return self.integer(false, *n, false, verb, val),
            Val::Byte(n) => return self.integer(false, u64::from(*n), false, verb, val),
            Val::Float(f) => return self.float(*f, verb, val),
            Val::Text(text) => return self.text(text.as_bytes(), verb, val),
            Val::Bytes(bytes) | Val::Raw(bytes) => return self.bytes(bytes, verb, val),
            Val::Position(position) => return self.bytes(&position.0, verb, val),
            Val::List(list) => self.list(list, verb, depth)?,
            Val::Map(map) => self.map(map, verb, depth)?,
            Val::Record(record) => {
                let fields = [
                    ("Position", Val::Position(record.position().clone())),
                    ("Operation", Val::Operation(record.operation)),
                    ("Metadata", Val::Map(Map::Metadata(record.metadata.clone()))),
                    ("Key", Val::data(&record.key)),
                    ("Payload", Val::Payload(record.payload.clone().into())),
                ];
                self.structure(val.type_name(), &fields, verb, depth)?;
            }
            Val::Payload(change) => {
                let fields = [("Before", Val::data(&change.before)), ("After", Val::data(&change.after))];
                self.structure(val.type_name(), &fields, verb, depth)?;
            }
            Val::Bool(_) | Val::Time(_) | Val::Version(_) => self.bad_verb(verb, Some(val))?,
        }
        Ok(())
    }

    /// Writes a value with its own text method if the verb takes a string. Returns `false` if it has none.
    fn method(&mut self, val: &Val, verb: char) -> Result<bool, CallError> {
        if !matches!(verb, 'v' | 's' | 'x' | 'X' | 'q')
            || (self.erroring && !matches!(val, Val::Time(_) | Val::Version(_)))
        {
            return Ok(false);
        }
        if self.flags.sharp_v && !matches!(val, Val::Time(_) | Val::Version(_)) {
            return Ok(false);
        }
        let text = match val {
            Val::Operation(operation) => operation.as_str().to_owned(),
            Val::Position(position) if position.0.is_empty() => "<nil>".to_owned(),
            Val::Position(position) => {
                self.text(&position.0, verb, val)?;
                return Ok(true);
            }
            Val::Time(time) => time.to_string(),
            Val::Duration(nanos) => super::val::duration_text(*nanos),
            Val::Version(version) => version.version.to_string(),
            _ => return Ok(false),
        };
        self.text(text.as_bytes(), verb, val)?;
        Ok(true)
    }

    /// Writes `%!verb(type=value)`.
    fn bad_verb(&mut self, verb: char, val: Option<&Val>) -> Result<(), CallError> {
        let before = std::mem::replace(&mut self.erroring, true);
        self.out.push_str("%!");
        self.out.push(verb);
        self.out.push('(');
        match val {
            Some(val) if !val.is_nil() => {
                self.out.push_str(val.type_name());
                self.out.push('=');
                self.argument(val, 'v')?;
            }
            _ => self.out.push_str("<nil>"),
        }
        self.out.push(')');
        self.erroring = before;
        Ok(())
    }

    fn text(&mut self, text: &[u8], verb: char, val: &Val) -> Result<(), CallError> {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.string(text),
            'q' => self.quoted(text),
            'x' | 'X' => self.hex(text, verb == 'X'),
            _ => return self.bad_verb(verb, Some(val)),
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8], verb: char, val: &Val) -> Result<(), CallError> {
        match verb {
            's' => self.string(bytes),
            'q' => self.quoted(bytes),
            'x' | 'X' => self.hex(bytes, verb == 'X'),
            _ => {
                let (open, separator, close) =
                    self.brackets(if matches!(val, Val::Bytes(_)) { "[]byte" } else { val.type_name() });
                self.out.push_str(&open);
                for (i, byte) in bytes.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(separator);
                    }
                    self.integer(false, u64::from(*byte), false, verb, &Val::Byte(*byte))?;
                }
                self.out.push(close);
            }
        }
        Ok(())
    }

    fn brackets(&self, type_name: &str) -> (String, &'static str, char) {
        if self.flags.sharp_v { (format!("{type_name}{{"), ", ", '}') } else { ("[".to_owned(), " ", ']') }
    }

    fn list(&mut self, list: &List, verb: char, depth: usize) -> Result<(), CallError> {
        if self.flags.sharp_v && list.is_nil() {
            self.out.push_str(list.type_name());
            self.out.push_str("(nil)");
            return Ok(());
        }
        let (open, separator, close) = self.brackets(list.type_name());
        self.out.push_str(&open);
        for (i, item) in list.iter().enumerate() {
            if i > 0 {
                self.out.push_str(separator);
            }
            self.nested(&item, verb, depth, list.elements() == Elements::Any)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn map(&mut self, map: &Map, verb: char, depth: usize) -> Result<(), CallError> {
        let (separator, close) = if self.flags.sharp_v {
            self.out.push_str(map.type_name());
            if map.is_nil() {
                self.out.push_str("(nil)");
                return Ok(());
            }
            self.out.push('{');
            (", ", '}')
        } else {
            self.out.push_str("map[");
            (" ", ']')
        };
        for (i, (key, val)) in map.entries().into_iter().enumerate() {
            if i > 0 {
                self.out.push_str(separator);
            }
            self.value(&Val::text(key), verb, depth + 1)?;
            self.out.push(':');
            self.nested(&val, verb, depth, true)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn structure(
        &mut self,
        type_name: &str,
        fields: &[(&str, Val)],
        verb: char,
        depth: usize,
    ) -> Result<(), CallError> {
        if self.flags.sharp_v {
            self.out.push_str(type_name);
        }
        self.out.push('{');
        for (i, (name, val)) in fields.iter().enumerate() {
            if i > 0 {
                self.out.push_str(if self.flags.sharp_v { ", " } else { " " });
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.out.push_str(name);
                self.out.push(':');
            }
            self.nested(val, verb, depth, true)?;
        }
        self.out.push('}');
        Ok(())
    }

    fn nested(&mut self, val: &Val, verb: char, depth: usize, interface: bool) -> Result<(), CallError> {
        if val.is_nil() {
            self.out.push_str(match (self.flags.sharp_v && interface, val) {
                (true, Val::NoData) => "Data(nil)",
                (true, _) => "interface {}(nil)",
                _ => "<nil>",
            });
            return Ok(());
        }
        self.value(val, verb, depth + 1)
    }

    /// Writes `piece` padded to the width, counted in characters.
    fn pad(&mut self, piece: &[u8]) {
        let Some(width) = self.flags.width.filter(|width| *width > 0) else {
            self.out.push_bytes(piece);
            return;
        };
        let padding = width.saturating_sub(quote::count_runes(piece));
        if self.flags.minus {
            self.out.push_bytes(piece);
            self.padding(padding);
        } else {
            self.padding(padding);
            self.out.push_bytes(piece);
        }
    }

    fn padding(&mut self, count: usize) {
        let c = if self.flags.zero && !self.flags.minus { "0" } else { " " };
        self.out.push_str(&c.repeat(count));
    }

    /// Writes `piece` padded like [`Self::pad`], but never with zeros.
    fn pad_with_spaces(&mut self, piece: &[u8]) {
        let zero = std::mem::replace(&mut self.flags.zero, false);
        self.pad(piece);
        self.flags.zero = zero;
    }

    fn string(&mut self, text: &[u8]) {
        self.pad(self.truncated(text));
    }

    /// Truncates the text to as many characters as the precision allows.
    fn truncated<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        match self.flags.precision {
            Some(precision) => &text[..quote::rune_offset(text, precision)],
            None => text,
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = self.truncated(text);
        if self.flags.sharp && quote::can_backquote(text) {
            self.pad(&[b"`", text, b"`"].concat());
        } else {
            self.pad(quote(text, '"', self.flags.plus).as_bytes());
        }
    }

    fn hex(&mut self, bytes: &[u8], upper: bool) {
        let bytes = &bytes[..self.flags.precision.unwrap_or(bytes.len()).min(bytes.len())];
        let (prefix, digits) = if upper { (b"0X", b"0123456789ABCDEF") } else { (b"0x", b"0123456789abcdef") };
        let mut text = Vec::with_capacity(bytes.len() * 2);
        for (i, byte) in bytes.iter().enumerate() {
            if i > 0 && self.flags.space {
                text.push(b' ');
            }
            if self.flags.sharp && (i == 0 || self.flags.space) {
                text.extend_from_slice(prefix);
            }
            text.extend([digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        }
        self.pad(&text);
    }
}
