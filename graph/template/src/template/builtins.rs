//! The functions of Go's `text/template`, except `slice`: sprig defines a function of the same name.

use super::format;
use super::functions::{CallError, Context, Function, Param};
use super::out::Out;
use super::val::{Text, Val};

mod compare;
mod escape;

use Param::{Any, Reflect};

pub(super) use compare::with_float;

/// The table of functions.
pub(crate) static TABLE: &[Function] = &[
    Function::new("and", &[Reflect], never).variadic(Reflect),
    Function::new("or", &[Reflect], never).variadic(Reflect),
    Function::new("not", &[Reflect], not),
    Function::new("call", &[Reflect], call).variadic(Reflect),
    Function::new("html", &[], escape::html).variadic(Any),
    Function::new("js", &[], escape::js).variadic(Any),
    Function::new("urlquery", &[], escape::url_query).variadic(Any),
    Function::new("index", &[Reflect], index).variadic(Reflect),
    Function::new("len", &[Reflect], len),
    Function::new("print", &[], print).variadic(Any),
    Function::new("printf", &[Param::Text], printf).variadic(Any),
    Function::new("println", &[], println).variadic(Any),
    Function::new("eq", &[Reflect], compare::eq).variadic(Reflect),
    Function::new("ne", &[Reflect, Reflect], compare::ne),
    Function::new("lt", &[Reflect, Reflect], compare::lt),
    Function::new("le", &[Reflect, Reflect], compare::le),
    Function::new("gt", &[Reflect, Reflect], compare::gt),
    Function::new("ge", &[Reflect, Reflect], compare::ge),
];

/// Returns the truth value that ends the evaluation of `and` or `or`; `None` for other functions.
pub(super) fn short_circuit(function: &Function) -> Option<bool> {
    match function.name {
        "and" => Some(false),
        "or" => Some(true),
        _ => None,
    }
}

/// The evaluator handles `and` and `or` argument by argument and never calls this function.
fn never(_: &mut Context, _: &[Val]) -> Result<Val, CallError> {
    Err(CallError::arguments())
}

fn not(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [val] = args else { return Err(CallError::arguments()) };
    Ok(Val::Bool(!val.is_true()))
}

/// Always fails: values of a record are never functions.
fn call(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [val, ..] = args else { return Err(CallError::arguments()) };
    Err(CallError::of_kind(val, format!("{} is not a function", val.in_words())))
}

fn len(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [val] = args else { return Err(CallError::arguments()) };
    let len = match val {
        Val::Text(text) => text.as_bytes().len(),
        Val::List(list) => list.len(),
        Val::Map(map) => map.len(),
        other => match other.as_bytes() {
            Some(bytes) => bytes.len(),
            None if other.is_nil() => return Err(CallError::lacking("len of nil")),
            None => return Err(CallError::of_kind(other, format!("{} has no length", other.in_words()))),
        },
    };
    Ok(Val::Int(len as i64))
}

/// Applies indexes to maps, lists, bytes and text.
fn index(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [item, indexes @ ..] = args else { return Err(CallError::arguments()) };
    if item.is_nil() {
        return Err(CallError::lacking("index of nil"));
    }
    let mut item = item.clone();
    for index in indexes {
        item = match &item {
            Val::Missing | Val::Nil | Val::NoData => return Err(CallError::lacking("index of nil")),
            Val::Map(map) => {
                let Val::Text(key) = index else {
                    let message = format!("the keys of a map are texts, not {}", index.in_words());
                    return Err(CallError::of_kind(index, message));
                };
                let missing = if map.is_text() { Val::text("") } else { Val::Nil };
                map.get(&key.lossy()).unwrap_or(missing)
            }
            Val::List(list) => at(index, list.len(), |i| list.get(i))?,
            Val::Text(text) => at(index, text.as_bytes().len(), |i| text.as_bytes().get(i).map(|b| Val::Byte(*b)))?,
            Val::Bytes(_) | Val::Raw(_) | Val::Position(_) => {
                let bytes = item.as_bytes().unwrap_or_default();
                at(index, bytes.len(), |i| bytes.get(i).map(|b| Val::Byte(*b)))?
            }
            other => return Err(CallError::of_kind(other, format!("{} has no elements", other.in_words()))),
        };
    }
    Ok(item)
}

fn at(index: &Val, len: usize, get: impl Fn(usize) -> Option<Val>) -> Result<Val, CallError> {
    let number = match (index.as_int(), index.as_uint()) {
        (Some(n), _) => usize::try_from(n).ok(),
        (None, Some(n)) => usize::try_from(n).ok(),
        (None, None) => {
            let message = format!("the index of a list element is a number, not {}", index.in_words());
            return Err(CallError::of_kind(index, message));
        }
    };
    number.and_then(get).ok_or_else(|| {
        let shown = index.as_int().map_or_else(|| index.as_uint().unwrap_or(0).to_string(), |n| n.to_string());
        format!("index out of range: {shown} with length {len}").into()
    })
}

fn print(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let mut out = Out::default();
    format::print(&mut out, args)?;
    Ok(Val::Text(out.into_text()))
}

fn println(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let mut out = Out::default();
    format::println(&mut out, args)?;
    Ok(Val::Text(out.into_text()))
}

fn printf(_: &mut Context, args: &[Val]) -> Result<Val, CallError> {
    let [Val::Text(layout), rest @ ..] = args else { return Err(CallError::arguments()) };
    // The usual cases do not need a copy.
    if let (b"%s" | b"%v", [Val::Text(text)]) = (layout.as_bytes(), rest) {
        return Ok(Val::Text(text.clone()));
    }
    let mut out = Out::default();
    format::printf(&mut out, layout.as_bytes(), rest)?;
    Ok(Val::Text(out.into_text()))
}

/// Joins the arguments to one text, for `html` and similar functions.
fn joined(args: &[Val]) -> Result<Text, CallError> {
    if let [Val::Text(text)] = args {
        return Ok(text.clone());
    }
    let shown: Vec<Val> = args.iter().map(|v| if v.is_nil() { Val::text("<no value>") } else { v.clone() }).collect();
    let mut out = Out::default();
    format::print(&mut out, &shown)?;
    Ok(out.into_text())
}

/// Returns `true` for nil, and for a nil map or list.
fn is_nil(val: &Val) -> bool {
    match val {
        Val::Map(map) => map.is_nil(),
        Val::List(list) => list.is_nil(),
        Val::Position(position) => position.0.is_empty(),
        other => other.is_nil(),
    }
}
