//! Lists.

use anabranch_record::Position;

use super::defaults::is_empty;
use super::equality::equal;
use super::signature::function;
use super::{CallError, Context, Function};
use crate::template::functions::cast::to_int64;
use crate::template::val::{Elements, List, Val};

/// Declares a function under its name and under the name of its `must` twin. In Go, only the first one panics on
/// errors; here both return the error.
macro_rules! twins {
    ($($name:literal, $must:literal, $(|$cx:ident|)? ($($params:tt)*) => try $body:expr;)*) => {
        &[$(
            function!($name, $(|$cx|)? ($($params)*) => try $body),
            function!($must, $(|$cx|)? ($($params)*) => try $body),
        )*]
    };
}

/// Functions without a twin.
pub(super) static TABLE: &[Function] = &[
    function!("list", (; values: Any) => List::new(values.to_vec())),
    function!("tuple", (; values: Any) => List::new(values.to_vec())),
    function!("concat", |cx| (; lists: Any) => try concat(cx, lists)),
];

/// Functions with a `must` twin.
pub(super) static TWINS: &[Function] = twins! {
    "append", "mustAppend", |cx| (list: Any, value: Any) => try extended(cx, &[], list, &[value]);
    "push", "mustPush", |cx| (list: Any, value: Any) => try extended(cx, &[], list, &[value]);
    "prepend", "mustPrepend", |cx| (list: Any, value: Any) => try extended(cx, &[value], list, &[]);
    "first", "mustFirst", (list: Any) => try elements(list).map(|l| l.get(0).unwrap_or(Val::Nil));
    "last", "mustLast", (list: Any) => try elements(list)
        .map(|l| l.len().checked_sub(1).and_then(|at| l.get(at)).unwrap_or(Val::Nil));
    "rest", "mustRest", |cx| (list: Any) => try part(cx, list, 1, 0);
    "initial", "mustInitial", |cx| (list: Any) => try part(cx, list, 0, 1);
    "reverse", "mustReverse", |cx| (list: Any) => try paid(cx, list)
        .map(|l| List::new(l.iter().rev().collect()));
    "compact", "mustCompact", |cx| (list: Any) => try paid(cx, list)
        .map(|l| List::new(l.iter().filter(|v| !is_empty(v)).collect()));
    "uniq", "mustUniq", |cx| (list: Any) => try unique(cx, list);
    "without", "mustWithout", |cx| (list: Any; omitted: Any) => try without(cx, list, omitted);
    "has", "mustHas", |cx| (needle: Any, list: Any) => try has(cx, needle, list);
    "slice", "mustSlice", (list: Any; bounds: Any) => try slice(list, bounds);
    "chunk", "mustChunk", |cx| (size: Int, list: Any) => try chunk(cx, size, list);
};

/// Returns the elements of a list.
fn elements(list: &Val) -> Result<List, CallError> {
    list.as_list().ok_or_else(|| CallError::of_kind(list, format!("it accepts a list, not {}", list.in_words())))
}

/// Returns the elements of a list and subtracts as many steps, for functions that create a list of that length.
fn paid(cx: &mut Context, list: &Val) -> Result<List, CallError> {
    let list = elements(list)?;
    cx.take_steps(list.len())?;
    Ok(list)
}

fn extended(cx: &mut Context, before: &[&Val], list: &Val, after: &[&Val]) -> Result<List, CallError> {
    let list = paid(cx, list)?;
    let ends = |values: &[&Val]| values.iter().map(|v| (*v).clone()).collect::<Vec<_>>();
    Ok(List::new(ends(before).into_iter().chain(list.iter()).chain(ends(after)).collect()))
}

/// Returns a list without `front` elements at the start and `end` elements at the end; nil for an empty list.
fn part(cx: &mut Context, list: &Val, front: usize, end: usize) -> Result<List, CallError> {
    let list = paid(cx, list)?;
    Ok(match list.len().checked_sub(end).and_then(|to| list.slice(front, to)) {
        Some(rest) => List::new(rest.iter().collect()),
        None => List::nil(Elements::Any),
    })
}

fn concat(cx: &mut Context, lists: &[Val]) -> Result<List, CallError> {
    let mut all = Vec::new();
    for list in lists {
        let list = list
            .as_list()
            .ok_or_else(|| CallError::of_kind(list, format!("it accepts lists, not {}", list.in_words())))?;
        cx.take_steps(list.len())?;
        all.extend(list.iter());
    }
    Ok(if all.is_empty() { List::nil(Elements::Any) } else { List::new(all) })
}

fn is_in(cx: &mut Context, value: &Val, list: &[Val]) -> Result<bool, CallError> {
    for other in list {
        if equal(cx, value, other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes duplicates. O(n * distinct elements); each comparison is a step.
fn unique(cx: &mut Context, list: &Val) -> Result<List, CallError> {
    let mut kept = Vec::new();
    for value in paid(cx, list)?.iter() {
        if !is_in(cx, &value, &kept)? {
            kept.push(value);
        }
    }
    Ok(List::new(kept))
}

fn without(cx: &mut Context, list: &Val, omitted: &[Val]) -> Result<List, CallError> {
    let mut kept = Vec::new();
    for value in paid(cx, list)?.iter() {
        if !is_in(cx, &value, omitted)? {
            kept.push(value);
        }
    }
    Ok(List::new(kept))
}

fn has(cx: &mut Context, needle: &Val, list: &Val) -> Result<bool, CallError> {
    if list.is_nil() {
        return Ok(false);
    }
    for value in elements(list)?.iter() {
        if equal(cx, needle, &value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns a part of a list or of bytes; a part of bytes is bytes.
fn slice(value: &Val, bounds: &[Val]) -> Result<Val, CallError> {
    let len = match value {
        Val::List(list) => list.len(),
        other => other.as_bytes().map(<[u8]>::len).ok_or_else(|| {
            let message = format!("only lists can be sliced, not {}; use substr for text", other.in_words());
            CallError::of_kind(other, message)
        })?,
    };
    if len == 0 {
        return Ok(Val::Nil);
    }
    let bound = |at: usize, other: usize| match bounds.get(at) {
        Some(bound) => usize::try_from(to_int64(bound)).ok(),
        None => Some(other),
    };
    let (from, to) = bound(0, 0)
        .zip(bound(1, len))
        .filter(|(from, to)| from <= to && *to <= len)
        .ok_or_else(|| format!("slice index out of bounds for a list of {len} elements"))?;
    match value {
        Val::List(list) => list.slice(from, to).map(Val::List).ok_or_else(CallError::arguments),
        Val::Raw(bytes) => Ok(Val::Raw(bytes.slice(from..to))),
        Val::Bytes(bytes) | Val::Position(Position(bytes)) => Ok(Val::Bytes(bytes.slice(from..to))),
        _ => Err(CallError::arguments()),
    }
}

fn chunk(cx: &mut Context, size: i64, list: &Val) -> Result<List, CallError> {
    let list = paid(cx, list)?;
    let Ok(size @ 1..) = usize::try_from(size) else {
        return Err(format!("the size of a chunk is at least 1, not {size}").into());
    };
    let items: Vec<Val> = list.iter().collect();
    Ok(List::of(Elements::List, items.chunks(size).map(|chunk| List::new(chunk.to_vec()).into()).collect()))
}
