//! Functions that make a value of the results of a closure, with a limit of all results together.

use vrl::compiler::prelude::*;

use super::limits::MostBytes;
use crate::weight::weight;

/// A function with a closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    Keys,
    Matches,
    Values,
}

impl Mapping {
    /// Returns the function of this name.
    pub(super) fn of_function(name: &str) -> Option<Mapping> {
        Some(match name {
            "map_keys" => Mapping::Keys,
            "replace_with" => Mapping::Matches,
            "map_values" => Mapping::Values,
            _ => return None,
        })
    }

    /// Compiles a call. `inner` is the call of the library's function, which has checked the arguments.
    pub(super) fn compile(
        self,
        context: &FunctionCompileContext,
        arguments: &ArgumentList,
        inner: Box<dyn Expression>,
    ) -> Compiled {
        Ok(Mapped {
            mapping: self,
            value: arguments.required("value"),
            pattern: arguments.optional("pattern"),
            count: arguments.optional("count"),
            recursive: arguments.optional("recursive"),
            closure: arguments.required_closure()?,
            inner,
            most: MostBytes::of(context),
        }
        .as_expr())
    }
}

/// A call of such a function.
#[derive(Clone, Debug)]
struct Mapped {
    mapping: Mapping,
    value: Box<dyn Expression>,
    pattern: Option<Box<dyn Expression>>,
    count: Option<Box<dyn Expression>>,
    recursive: Option<Box<dyn Expression>>,
    closure: Closure,
    inner: Box<dyn Expression>,
    most: MostBytes,
}

impl FunctionExpression for Mapped {
    fn resolve(&self, context: &mut Context) -> Resolved {
        let recursive = match &self.recursive {
            Some(recursive) => recursive.resolve(context)?.try_boolean()?,
            None => false,
        };
        let value = self.value.resolve(context)?;
        match self.mapping {
            Mapping::Keys => self.keys(value, recursive, context),
            Mapping::Matches => self.matches(&value, context),
            Mapping::Values => self.values(value, recursive, context),
        }
    }

    fn type_def(&self, state: &TypeState) -> TypeDef {
        let inner = self.inner.type_def(state);
        match self.mapping {
            // The names of the fields are not known: the library's type has those before.
            Mapping::Keys => inner.with_kind(Kind::object(Collection::any())),
            Mapping::Matches | Mapping::Values => inner,
        }
    }
}

impl Mapped {
    fn keys(&self, value: Value, recursive: bool, context: &mut Context) -> Resolved {
        let Closure { variables, block, .. } = &self.closure;
        let runner = closure::Runner::new(variables, |context: &mut Context| block.resolve(context));
        let mut bytes = weight(&value);
        let mut items = value.into_iter(recursive);
        for item in items.by_ref() {
            if let IterItem::KeyValue(key, _) = item {
                bytes = bytes.saturating_sub(key.len());
                runner.map_key(context, key)?;
                bytes += key.len();
                self.most.check(bytes)?;
            }
        }
        Ok(items.into())
    }

    fn values(&self, value: Value, recursive: bool, context: &mut Context) -> Resolved {
        let Closure { variables, block, .. } = &self.closure;
        let runner = closure::Runner::new(variables, |context: &mut Context| block.resolve(context));
        let mut bytes = weight(&value);
        let mut items = value.into_iter(recursive);
        for item in items.by_ref() {
            let value = match item {
                IterItem::KeyValue(_, value) | IterItem::IndexValue(_, value) | IterItem::Value(value) => value,
            };
            bytes = bytes.saturating_sub(weight(value));
            runner.map_value(context, value)?;
            bytes = bytes.saturating_add(weight(value));
            self.most.check(bytes)?;
        }
        Ok(items.into())
    }

    fn matches(&self, value: &Value, context: &mut Context) -> Resolved {
        let pattern = match &self.pattern {
            Some(pattern) => pattern.resolve(context)?,
            None => Value::Null,
        };
        let regex = pattern.as_regex().ok_or("failed to resolve regex")?;
        if regex.capture_names().flatten().any(|name| name == "string" || name == "captures") {
            return Err(r#"Capture group cannot be named "string" or "captures""#.into());
        }
        let limit = match &self.count {
            Some(count) => match count.resolve(context)?.try_integer()? {
                0 => return Ok(value.clone()),
                count => usize::try_from(count).unwrap_or(usize::MAX),
            },
            None => usize::MAX,
        };
        let text = value.try_bytes_utf8_lossy()?;
        let Closure { variables, block, .. } = &self.closure;
        let runner = closure::Runner::new(variables, |context: &mut Context| block.resolve(context));
        let (mut out, mut last) = (String::with_capacity(text.len()), 0);
        for captures in regex.captures_iter(&text).take(limit) {
            let Some(found) = captures.get(0) else { continue };
            let mut groups = Vec::with_capacity(captures.len() - 1);
            let mut object = ObjectMap::from([("string".into(), Value::from(found.as_str()))]);
            for (at, name) in regex.capture_names().enumerate().skip(1) {
                let group = captures.get(at).map_or(Value::Null, |group| group.as_str().into());
                object.extend(name.map(|name| (KeyString::from(name), group.clone())));
                groups.push(group);
            }
            object.insert("captures".into(), Value::Array(groups));
            let mut replacement = Value::Object(object);
            runner.map_value(context, &mut replacement)?;
            let replacement = replacement.try_bytes_utf8_lossy()?;
            self.most.check(out.len() + found.start() - last + replacement.len())?;
            out.push_str(&text[last..found.start()]);
            out.push_str(&replacement);
            last = found.end();
        }
        self.most.check(out.len() + text.len() - last)?;
        out.push_str(&text[last..]);
        Ok(out.into())
    }
}
