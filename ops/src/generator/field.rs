//! Fields of generated data: their types, and how values are made.

use std::str::FromStr;

use anabranch_plugin::flow::{self, Kinds, Type};
use anabranch_record::text::Str;
use anabranch_record::value::{Timestamp, Value};
use fastrand::Rng;

use super::vocabulary::{CITIES, COUNTRIES, FAMILY_NAMES, GIVEN_NAMES, WORDS};

/// A field of structured data.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Name of the field.
    pub(super) name: Str,
    /// Type of its values.
    pub(super) kind: FieldKind,
}

/// Type of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// An integer, 0 to 2^63 - 1.
    Int,
    /// A number, 0 to 1000.
    Float,
    /// True or false.
    Bool,
    /// An English word.
    Word,
    /// The time the record was made.
    Time,
    /// Whole seconds, 0 to 999, as nanoseconds.
    Duration,
    /// Given name and family name.
    Name,
    /// An address at a domain that can never exist.
    Email,
    /// A city.
    City,
    /// A country.
    Country,
    /// A random UUID (version 4).
    Uuid,
    /// Four to ten words.
    Sentence,
}

impl Field {
    /// Returns the name and the static type of the field.
    pub(super) fn shape(&self) -> (Str, flow::Field) {
        let kinds = match self.kind {
            FieldKind::Int | FieldKind::Duration => Kinds::INT,
            FieldKind::Float => Kinds::FLOAT,
            FieldKind::Bool => Kinds::BOOL,
            FieldKind::Time => Kinds::TIME,
            FieldKind::Word
            | FieldKind::Name
            | FieldKind::Email
            | FieldKind::City
            | FieldKind::Country
            | FieldKind::Uuid
            | FieldKind::Sentence => Kinds::TEXT,
        };
        (self.name.clone(), flow::Field::present(Type::of(kinds)))
    }
}

impl FieldKind {
    const ALL: [(&'static str, FieldKind); 12] = [
        ("int", FieldKind::Int),
        ("string", FieldKind::Word),
        ("time", FieldKind::Time),
        ("bool", FieldKind::Bool),
        ("duration", FieldKind::Duration),
        ("float", FieldKind::Float),
        ("name", FieldKind::Name),
        ("email", FieldKind::Email),
        ("city", FieldKind::City),
        ("country", FieldKind::Country),
        ("uuid", FieldKind::Uuid),
        ("sentence", FieldKind::Sentence),
    ];

    /// Names used in settings, the common ones first.
    pub(super) const NAMES: [&'static str; 12] = {
        let mut names = [""; 12];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::ALL[i].0;
            i += 1;
        }
        names
    };

    /// Returns the maximum number of bytes of text in a value.
    pub(super) fn longest(self) -> usize {
        match self {
            FieldKind::Int | FieldKind::Float | FieldKind::Bool | FieldKind::Duration | FieldKind::Time => 0,
            FieldKind::Word | FieldKind::City | FieldKind::Country => 16,
            FieldKind::Name => 24,
            FieldKind::Uuid => 36,
            FieldKind::Email => 40,
            FieldKind::Sentence => 96,
        }
    }

    /// Generates a value. Only names, e-mail addresses, UUIDs and sentences allocate.
    pub(super) fn value(self, random: &mut Rng, now: &Timestamp) -> Value {
        match self {
            FieldKind::Int => Value::Int((random.u64(..) >> 1) as i64),
            FieldKind::Float => Value::Float(random.f64() * 1000.0),
            FieldKind::Bool => Value::Bool(random.bool()),
            FieldKind::Word => fixed(pick(random, WORDS)),
            FieldKind::Time => Value::Time(*now),
            FieldKind::Duration => Value::Int(random.i64(0..1000) * 1_000_000_000),
            FieldKind::City => fixed(pick(random, CITIES)),
            FieldKind::Country => fixed(pick(random, COUNTRIES)),
            FieldKind::Name => {
                let (given, family) = (pick(random, GIVEN_NAMES), pick(random, FAMILY_NAMES));
                format!("{given} {family}").into()
            }
            FieldKind::Email => {
                let (given, family) = (pick(random, GIVEN_NAMES), pick(random, FAMILY_NAMES));
                let mut text = format!("{given}.{family}{}@{}.example", random.u8(0..100), pick(random, WORDS));
                text.make_ascii_lowercase();
                text.into()
            }
            FieldKind::Uuid => {
                let bits = random.u128(..) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
                let hex = |shift: u32, digits: u32| (bits >> shift) as u64 & ((1u64 << (4 * digits)) - 1);
                format!(
                    "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                    hex(96, 8),
                    hex(80, 4),
                    hex(64, 4),
                    hex(48, 4),
                    hex(0, 12)
                )
                .into()
            }
            FieldKind::Sentence => {
                let mut text = String::with_capacity(self.longest());
                for i in 0..random.usize(4..=10) {
                    let word = pick(random, WORDS);
                    if i == 0 {
                        text.push(word.as_bytes()[0].to_ascii_uppercase() as char);
                        text.push_str(&word[1..]);
                    } else {
                        text.push(' ');
                        text.push_str(word);
                    }
                }
                text.push('.');
                text.into()
            }
        }
    }
}

impl FromStr for FieldKind {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind).ok_or(())
    }
}

/// Returns a random element of a list.
pub(super) fn pick(random: &mut Rng, texts: &'static [&'static str]) -> &'static str {
    texts[random.usize(..texts.len())]
}

fn fixed(text: &'static str) -> Value {
    Value::Text(Str::from_static(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(value: &Value) -> &str {
        value.as_text().map_or("", Str::as_str)
    }

    #[test]
    fn values_are_what_their_type_says() {
        let now = Timestamp::from_timestamp_nanos(7);
        for seed in 0..2000 {
            let random = &mut Rng::with_seed(seed);
            let mut make = |kind: FieldKind| kind.value(random, &now);
            assert!(matches!(make(FieldKind::Int), Value::Int(0..)));
            assert!(matches!(make(FieldKind::Float), Value::Float(v) if (0.0..1000.0).contains(&v)));
            assert!(matches!(make(FieldKind::Bool), Value::Bool(_)));
            assert!(matches!(make(FieldKind::Duration), Value::Int(v) if v % 1_000_000_000 == 0 && v < 1000 << 30));
            assert_eq!(make(FieldKind::Time), Value::Time(now));
            let uuid = make(FieldKind::Uuid);
            let parts: Vec<&str> = text_of(&uuid).split('-').collect();
            assert_eq!(parts.iter().map(|p| p.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid:?}");
            assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid:?}");
            for (name, kind) in FieldKind::ALL {
                let value = make(kind);
                assert!(text_of(&value).len() <= kind.longest(), "{name} {value:?}");
                assert!(value.as_text().is_some() == (kind.longest() > 0), "{name} {value:?}");
            }
        }
    }
}
