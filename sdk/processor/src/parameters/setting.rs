//! Types of parameters.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_record::reference::Reference;
use anabranch_record::specification::ParameterKind;

use super::{Field, Settings};

/// A type that a parameter can have.
///
/// For your own types, implement [`Setting::KIND`] and [`Setting::parse`], and [`Setting::number`] for numbers.
pub trait Setting: Sized {
    /// Kind that hosts and their users see.
    const KIND: ParameterKind;

    /// Parses a text that is not blank. Surrounding white space is present only if the kind is a string or a file.
    ///
    /// # Errors
    /// Returns the problem as a sentence without its subject, which is the name of the parameter.
    fn parse(text: &str) -> Result<Self, String>;

    /// Returns the value for a missing setting, or `None` if a value is required.
    fn absent() -> Option<Self> {
        None
    }

    /// Returns the value if it is a number, for `greater_than` and `less_than`: any other value violates every bound.
    fn number(&self) -> Option<f64> {
        None
    }

    /// Returns the name under which a parameter of this name is declared.
    fn declared(name: &str) -> String {
        name.to_owned()
    }

    /// Reads the parameter of this name. Returns `None` if problems were recorded in the settings.
    fn read(name: &str, field: &Field, settings: &mut Settings) -> Option<Self> {
        settings.one(name, field)
    }
}

impl Setting for String {
    const KIND: ParameterKind = ParameterKind::Text;

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Setting for PathBuf {
    const KIND: ParameterKind = ParameterKind::File;

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }
}

impl Setting for Reference {
    const KIND: ParameterKind = ParameterKind::Text;

    fn parse(text: &str) -> Result<Self, String> {
        Reference::parse(text.trim()).map_err(|error| match error.hint() {
            Some(hint) => format!("{error} ({hint})"),
            None => error.to_string(),
        })
    }
}

impl Setting for bool {
    const KIND: ParameterKind = ParameterKind::Bool;

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        }
    }
}

macro_rules! numbers {
    ($($kind:ident: $($number:ty),*, $what:literal;)*) => {$($(
        impl Setting for $number {
            const KIND: ParameterKind = ParameterKind::$kind;

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!(concat!("{:?} is not a ", $what, " that fits into ", stringify!($number)), text))
            }

            fn number(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }
    )*)*};
}

numbers! {
    Int: i8, i16, i32, i64, u8, u16, u32, u64, usize, "whole number";
    Float: f32, f64, "number";
}

impl Setting for Duration {
    const KIND: ParameterKind = ParameterKind::Duration;

    /// Parses numbers with the units h, m, s, ms, us (µs) and ns, the largest first: `1h30m`, `1.5s`.
    fn parse(text: &str) -> Result<Self, String> {
        duration(text).ok_or_else(|| format!("{text:?} is not a duration (for example 1m30s or 250ms)"))
    }
}

fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut nanoseconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        nanoseconds += number
            * match &rest[..unit] {
                "ns" => 1.0,
                "us" | "µs" | "μs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    // The range of the protocol's durations.
    (!text.is_empty() && nanoseconds < i64::MAX as f64).then(|| Duration::from_nanos(nanoseconds.round() as u64))
}

/// An optional value.
impl<T: Setting> Setting for Option<T> {
    const KIND: ParameterKind = T::KIND;

    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }

    fn number(&self) -> Option<f64> {
        self.as_ref().and_then(T::number)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// Values separated by commas.
impl<T: Setting> Setting for Vec<T> {
    const KIND: ParameterKind = ParameterKind::Text;

    fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(T::parse).collect()
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }
}

/// All settings whose names begin with the name of the parameter and a dot, by the rest of their names.
impl<T: Setting> Setting for BTreeMap<String, T> {
    const KIND: ParameterKind = T::KIND;

    fn parse(_: &str) -> Result<Self, String> {
        Err("a name after a dot is missing".to_owned())
    }

    fn absent() -> Option<Self> {
        Some(BTreeMap::new())
    }

    fn declared(name: &str) -> String {
        [name, ".*"].concat()
    }

    fn read(name: &str, field: &Field, settings: &mut Settings) -> Option<Self> {
        let prefix = [name, "."].concat();
        let below = settings.below(&prefix);
        let declared = Self::declared(name);
        if below.is_empty() && settings.is_required(&declared) {
            settings.problem(&declared, super::REQUIRED);
            return None;
        }
        let (mut map, mut valid) = (BTreeMap::new(), true);
        for (key, text) in below {
            let full = [&prefix, key.as_str()].concat();
            // Put the value back, so that a value in a map is read like any other.
            settings.left.insert(full.clone(), text);
            match settings.one(&full, field) {
                Some(value) => drop(map.insert(key, value)),
                None => valid = false,
            }
        }
        valid.then_some(map)
    }
}
