//! Functions whose result can be much larger than their arguments, with a limit that is checked before the memory is
//! used. Their results, errors and types are those of the library.

use std::collections::BTreeSet;

use vrl::compiler::prelude::*;
use vrl::path::OwnedValuePath;

use super::limits::MostBytes;
use crate::weight::{MOST_LEVELS, TOO_DEEP, weight};

/// A function with its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    Chunks,
    EncodeKeyValue,
    EncodeLogfmt,
    Flatten,
    FormatNumber,
    Join,
    ParseRegexAll,
    Replace,
    Set,
    Sieve,
    Split,
}

impl Growth {
    /// Returns the function of this name.
    pub(super) fn of_function(name: &str) -> Option<Growth> {
        Some(match name {
            "chunks" => Growth::Chunks,
            "encode_key_value" => Growth::EncodeKeyValue,
            "encode_logfmt" => Growth::EncodeLogfmt,
            "flatten" => Growth::Flatten,
            "format_number" => Growth::FormatNumber,
            "join" => Growth::Join,
            "parse_regex_all" => Growth::ParseRegexAll,
            "replace" => Growth::Replace,
            "set" => Growth::Set,
            "sieve" => Growth::Sieve,
            "split" => Growth::Split,
            _ => return None,
        })
    }

    /// Returns the parameters that [`Bounded::resolve`] evaluates, in its order.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Growth::Chunks => &["value", "chunk_size"],
            Growth::EncodeKeyValue => {
                &["value", "fields_ordering", "key_value_delimiter", "field_delimiter", "flatten_boolean"]
            }
            Growth::EncodeLogfmt => &["value", "fields_ordering"],
            Growth::Flatten => &["value", "separator"],
            Growth::FormatNumber => &["scale"],
            Growth::Join => &["value", "separator"],
            Growth::ParseRegexAll => &["value", "pattern", "numeric_groups"],
            Growth::Replace => &["value", "with", "count", "pattern"],
            Growth::Set => &["path", "value", "data"],
            Growth::Sieve => &["value", "permitted_characters", "replace_single", "replace_repeated"],
            Growth::Split => &["value", "limit", "pattern"],
        }
    }

    /// Compiles a call. `inner` is the call of the library's function, which has checked the arguments.
    pub(super) fn compile(
        self,
        state: &TypeState,
        context: &FunctionCompileContext,
        arguments: &ArgumentList,
        inner: Box<dyn Expression>,
    ) -> Box<dyn Expression> {
        let except = match self {
            Growth::Flatten => arguments.optional("except").and_then(|except| except.resolve_constant(state)),
            _ => None,
        };
        let except = except.and_then(|except| except.try_array().ok()).unwrap_or_default();
        let except = except.iter().filter_map(|name| name.try_bytes_utf8_lossy().ok().map(KeyString::from)).collect();
        let arguments = self.parameters().iter().map(|name| arguments.optional(name)).collect();
        Bounded { growth: self, arguments, except, inner, most: MostBytes::of(context) }.as_expr()
    }
}

/// A call of such a function.
#[derive(Clone, Debug)]
struct Bounded {
    growth: Growth,
    /// The arguments of [`Growth::parameters`].
    arguments: Vec<Option<Box<dyn Expression>>>,
    /// Names that `flatten` leaves as they are.
    except: BTreeSet<KeyString>,
    inner: Box<dyn Expression>,
    most: MostBytes,
}

impl FunctionExpression for Bounded {
    fn resolve(&self, context: &mut Context) -> Resolved {
        match self.growth {
            Growth::Chunks => self.chunks(context),
            Growth::EncodeKeyValue => self.encode_key_value(context, false),
            Growth::EncodeLogfmt => self.encode_key_value(context, true),
            Growth::Flatten => self.flatten(context),
            Growth::FormatNumber => self.format_number(context),
            Growth::Join => self.join(context),
            Growth::ParseRegexAll => self.parse_regex_all(context),
            Growth::Replace => self.replace(context),
            Growth::Set => self.set(context),
            Growth::Sieve => self.sieve(context),
            Growth::Split => self.split(context),
        }
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        self.inner.type_def(state)
    }
}

impl Bounded {
    /// Evaluates an optional argument.
    fn optional(&self, at: usize, context: &mut Context) -> Result<Option<Value>, ExpressionError> {
        self.arguments.get(at).and_then(Option::as_ref).map(|argument| argument.resolve(context)).transpose()
    }

    /// Evaluates an argument.
    fn required(&self, at: usize, context: &mut Context) -> Resolved {
        Ok(self.optional(at, context)?.unwrap_or(Value::Null))
    }

    /// Evaluates an optional string.
    fn text(&self, at: usize, default: &'static str, context: &mut Context) -> Resolved {
        Ok(self.optional(at, context)?.unwrap_or_else(|| Value::from(default)))
    }

    /// Checks the size of a list of strings, with the number of strings.
    fn check_list(&self, text: usize, count: impl FnOnce() -> usize) -> Result<(), ExpressionError> {
        let bytes = |count: usize| text.saturating_add(count.saturating_mul(size_of::<Value>()));
        // At most one string for each byte, and one before the first and after the last.
        match bytes(text + 2) > self.most.0 {
            true => self.most.check(bytes(count())),
            false => Ok(()),
        }
    }

    fn replace(&self, context: &mut Context) -> Resolved {
        let (value, with) = (self.required(0, context)?, self.required(1, context)?);
        let count = self.optional(2, context)?;
        let pattern = self.required(3, context)?;
        let (value, with) = (value.try_bytes_utf8_lossy()?, with.try_bytes_utf8_lossy()?);
        let limit = match count.map(VrlValueConvert::try_integer).transpose()?.unwrap_or(-1) {
            0 => 0,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        };
        // A match in each place, each replaced by the text and, for a `$` in it, by itself.
        let places = value.len().saturating_add(1);
        let may_exceed = places.saturating_mul(with.len().saturating_mul(2).saturating_add(1)) > self.most.0;
        match &pattern {
            Value::Bytes(_) | Value::String(_) => {
                let pattern = pattern.try_bytes_utf8_lossy()?;
                if may_exceed {
                    let count = value.matches(&*pattern).take(limit).count();
                    let removed = count.saturating_mul(pattern.len());
                    self.most
                        .check(value.len().saturating_sub(removed).saturating_add(count.saturating_mul(with.len())))?;
                }
                Ok(value.replacen(&*pattern, &with, limit).into())
            }
            Value::Regex(_) if limit == 0 => Ok(value.into()),
            Value::Regex(regex) if !may_exceed => {
                // For this function, 0 is no limit.
                let limit = if limit == usize::MAX { 0 } else { limit };
                Ok(regex.replacen(&value, limit, &*with).into())
            }
            Value::Regex(regex) => {
                let references = with.matches('$').count();
                let (mut out, mut last) = (String::new(), 0);
                for captures in regex.captures_iter(&value).take(limit) {
                    let Some(found) = captures.get(0) else { continue };
                    let most = with.len().saturating_add(references.saturating_mul(found.len()));
                    self.most.check((out.len() + found.start() - last).saturating_add(most))?;
                    out.push_str(&value[last..found.start()]);
                    captures.expand(&with, &mut out);
                    last = found.end();
                }
                self.most.check(out.len() + value.len() - last)?;
                out.push_str(&value[last..]);
                Ok(out.into())
            }
            other => Err(not_a_pattern(other)),
        }
    }

    fn sieve(&self, context: &mut Context) -> Resolved {
        let (value, pattern) = (self.required(0, context)?, self.required(1, context)?);
        let (single, repeated) = (self.text(2, "", context)?, self.text(3, "", context)?);
        let value = value.try_bytes_utf8_lossy()?;
        let (single, repeated) = (single.try_bytes_utf8_lossy()?, repeated.try_bytes_utf8_lossy()?);
        let Value::Regex(regex) = &pattern else {
            return Err(ValueError::Expected { got: pattern.kind(), expected: Kind::regex() }.into());
        };
        let (mut out, mut last) = (String::with_capacity(value.len()), 0);
        for found in regex.find_iter(&value) {
            let between = match found.start() - last {
                0 => "",
                1 => &*single,
                _ => &*repeated,
            };
            self.most.check(out.len() + between.len() + found.len())?;
            out.push_str(between);
            out.push_str(found.as_str());
            last = found.end();
        }
        Ok(out.into())
    }

    fn join(&self, context: &mut Context) -> Resolved {
        let list = self.required(0, context)?.try_array()?;
        let texts = list.iter().map(VrlValueConvert::try_bytes_utf8_lossy).collect::<Result<Vec<_>, _>>();
        let texts = texts.map_err(|_| "all array items must be strings")?;
        let separator = self.text(1, "", context)?;
        let separator = separator.try_bytes_utf8_lossy()?;
        let between = separator.len().saturating_mul(texts.len().saturating_sub(1));
        self.most.check(texts.iter().map(|text| text.len()).sum::<usize>().saturating_add(between))?;
        Ok(texts.join(&*separator).into())
    }

    fn split(&self, context: &mut Context) -> Resolved {
        let value = self.required(0, context)?;
        let limit = self.optional(1, context)?;
        let pattern = self.required(2, context)?;
        let value = value.try_bytes_utf8_lossy()?;
        let limit = match limit {
            Some(limit) => usize::try_from(limit.try_integer()?).unwrap_or(0),
            None => 999_999_999,
        };
        match &pattern {
            Value::Bytes(_) | Value::String(_) => {
                let pattern = pattern.try_bytes_utf8_lossy()?;
                self.check_list(value.len(), || value.splitn(limit, &*pattern).count())?;
                Ok(value.splitn(limit, &*pattern).collect::<Vec<_>>().into())
            }
            Value::Regex(regex) => {
                self.check_list(value.len(), || regex.splitn(&value, limit).count())?;
                Ok(regex.splitn(&value, limit).collect::<Vec<_>>().into())
            }
            other => Err(not_a_pattern(other)),
        }
    }

    fn chunks(&self, context: &mut Context) -> Resolved {
        let bytes = self.required(0, context)?.try_bytes()?;
        let size = self.required(1, context)?.try_integer()?;
        let Ok(size @ 1..) = usize::try_from(size) else {
            return Err(r#""chunk_size" must be at least 1 byte"#.into());
        };
        self.check_list(bytes.len(), || bytes.len().div_ceil(size))?;
        Ok(bytes.chunks(size).collect::<Vec<_>>().into())
    }

    fn parse_regex_all(&self, context: &mut Context) -> Resolved {
        let value = self.required(0, context)?;
        let pattern = self.required(1, context)?;
        let Value::Regex(regex) = &pattern else {
            return Err(ValueError::Expected { got: pattern.kind(), expected: Kind::regex() }.into());
        };
        let numbered = match self.optional(2, context)? {
            Some(numbered) => numbered.try_boolean()?,
            None => false,
        };
        let value = value.try_bytes_utf8_lossy()?;
        let names = regex.capture_names().enumerate();
        let names: Vec<(usize, KeyString)> =
            names.filter_map(|(at, name)| Some((at, KeyString::from(name?)))).collect();
        let (mut list, mut bytes) = (Vec::new(), 0);
        for captures in regex.captures_iter(&value) {
            let mut object = ObjectMap::new();
            if numbered {
                let groups = captures.iter().flatten().enumerate();
                object.extend(groups.map(|(at, group)| (KeyString::from(at.to_string()), group.as_str().into())));
            }
            object.extend(names.iter().map(|(at, name)| {
                let group = captures.get(*at).map(|group| group.as_str());
                (name.clone(), group.map_or(Value::Null, Value::from))
            }));
            let object = Value::Object(object);
            bytes = weight(&object).saturating_add(bytes + size_of::<Value>());
            self.most.check(bytes)?;
            list.push(object);
        }
        Ok(Value::Array(list))
    }

    fn flatten(&self, context: &mut Context) -> Resolved {
        let value = self.required(0, context)?;
        let separator = self.text(1, ".", context)?;
        let separator = separator.try_bytes_utf8_lossy()?;
        match value {
            Value::Array(list) => {
                let mut out = Vec::with_capacity(list.len());
                flatten_list(list, &mut out);
                Ok(Value::Array(out))
            }
            Value::Object(object) => {
                let mut out = Flattened { map: ObjectMap::new(), separator: &separator, names: 0 };
                self.flatten_object(None, object, &mut out)?;
                Ok(Value::Object(out.map))
            }
            other => {
                let expected = Kind::array(Collection::any()) | Kind::object(Collection::any());
                Err(ValueError::Expected { got: other.kind(), expected }.into())
            }
        }
    }

    fn flatten_object(
        &self,
        parent: Option<&str>,
        object: ObjectMap,
        out: &mut Flattened<'_>,
    ) -> Result<(), ExpressionError> {
        for (key, value) in object {
            let is_kept = self.except.contains(&key);
            let name = match parent {
                None => key,
                Some(parent) => {
                    out.names += parent.len() + out.separator.len() + key.len();
                    self.most.check(out.names)?;
                    KeyString::from(format!("{parent}{}{key}", out.separator))
                }
            };
            match value {
                Value::Object(object) if !is_kept => self.flatten_object(Some(name.as_str()), object, out)?,
                value => drop(out.map.insert(name, value)),
            }
        }
        Ok(())
    }

    fn encode_key_value(&self, context: &mut Context, is_logfmt: bool) -> Resolved {
        let value = self.required(0, context)?;
        let order = self.optional(1, context)?.unwrap_or(Value::Array(Vec::new())).try_array()?;
        let between = self.text(2, "=", context)?;
        let after = self.text(3, " ", context)?;
        let is_flat = match self.optional(4, context)? {
            Some(is_flat) => is_flat.try_boolean()?,
            None => is_logfmt,
        };
        let name = |(at, name): (usize, &Value)| {
            let name = name.try_bytes_utf8_lossy().map(KeyString::from);
            name.map_err(|error| ExpressionError::from(format!("invalid field value type at index {at}: {error}")))
        };
        let order = order.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?;
        let object = value.try_object()?;
        let (between, after) = (between.try_bytes_utf8_lossy()?, after.try_bytes_utf8_lossy()?);
        let mut bytes = 0;
        for (name, value) in &object {
            self.weigh_pairs(name.len(), value, between.len() + after.len(), &mut bytes)?;
        }
        let text = vrl::core::encode_key_value::to_string(&object, &order, &between, &after, is_flat);
        let text = text.map_err(|error| ExpressionError::from(error.to_string()))?;
        self.most.check(text.len())?;
        Ok(text.into())
    }

    /// Adds the sizes of the keys, values and delimiters of all values in a value.
    fn weigh_pairs(
        &self,
        name: usize,
        value: &Value,
        delimiters: usize,
        bytes: &mut usize,
    ) -> Result<(), ExpressionError> {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    self.weigh_pairs(name + 1 + key.len(), value, delimiters, bytes)?;
                }
                Ok(())
            }
            Value::Array(list) => {
                for value in list {
                    self.weigh_pairs(name + 2, value, delimiters, bytes)?;
                }
                Ok(())
            }
            // A boolean that is true is its name alone.
            Value::Boolean(_) => {
                *bytes += name;
                self.most.check(*bytes)
            }
            other => {
                *bytes = weight(other).saturating_add(*bytes + name + delimiters);
                self.most.check(*bytes)
            }
        }
    }

    fn set(&self, context: &mut Context) -> Resolved {
        let path = self.required(0, context)?;
        let (mut value, data) = (self.required(1, context)?, self.required(2, context)?);
        let Value::Array(segments) = path else {
            let expected = Kind::array(Collection::any()) | Kind::bytes();
            return Err(ValueError::Expected { got: path.kind(), expected }.into());
        };
        if segments.len() > MOST_LEVELS {
            self.most.check(TOO_DEEP)?;
        }
        for index in segments.iter().filter_map(Value::as_integer) {
            // The list is filled up to the index.
            let index = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
            self.most.check(index.saturating_mul(size_of::<Value>()))?;
        }
        value.insert(&OwnedValuePath::try_from(segments)?, data);
        Ok(value)
    }

    fn format_number(&self, context: &mut Context) -> Resolved {
        // The library's function evaluates it again. That has an effect only if it assigns.
        if let Some(Value::Integer(scale)) = self.optional(0, context)? {
            // The library takes a negative scale for a very large one.
            self.most.check(usize::try_from(scale).unwrap_or(usize::MAX))?;
        }
        self.inner.resolve(context)
    }
}

/// An object that is made of nested ones.
struct Flattened<'s> {
    map: ObjectMap,
    separator: &'s str,
    /// Size of its names.
    names: usize,
}

fn flatten_list(list: Vec<Value>, out: &mut Vec<Value>) {
    for value in list {
        match value {
            Value::Array(list) => flatten_list(list, out),
            value => out.push(value),
        }
    }
}

#[cold]
fn not_a_pattern(value: &Value) -> ExpressionError {
    ValueError::Expected { got: value.kind(), expected: Kind::regex() | Kind::bytes() }.into()
}
