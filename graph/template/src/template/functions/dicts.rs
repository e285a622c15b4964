//! Dictionaries. Dictionaries of a template are shared and mutable; a map of the record is copied first.

use anabranch_record::text::Str;

use super::defaults::is_empty;
use super::signature::function;
use super::strings::to_text;
use super::{CallError, Context, Function};
use crate::template::val::{Dict, List, Map, Text, Val};

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("dict", (; pairs: Any) => try dict(pairs)),
    function!("get", (map: Map, key: Text) => map.get(&key.to_key()).unwrap_or_else(|| Val::from(""))),
    function!("set", (map: Map, key: Text, value: Any) => try {
        let dict = map.to_dict();
        dict.insert(key.to_key(), value.clone()).map(|()| dict)
    }),
    function!("unset", (map: Map, key: Text) => {
        let dict = map.to_dict();
        dict.remove(&key.to_key());
        dict
    }),
    function!("hasKey", (map: Map, key: Text) => map.get(&key.to_key()).is_some()),
    function!("pluck", (key: Text; maps: Map) => {
        let key = key.to_key();
        List::new(maps.iter().filter_map(Val::as_map).filter_map(|map| map.get(&key)).collect())
    }),
    function!("keys", |cx| (; maps: Map) => try keys(cx, maps)),
    function!("values", |cx| (map: Map) => try {
        cx.take_steps(map.len()).map(|()| List::new(map.entries().into_iter().map(|(_, value)| value).collect()))
    }),
    function!("pick", (map: Map; keys: Text) => {
        let keys = keys.iter().filter_map(Val::as_text).map(Text::to_key);
        Dict::from_entries(keys.filter_map(|key| map.get(&key).map(|value| (key, value))))
    }),
    function!("omit", |cx| (map: Map; keys: Text) => try {
        copied(cx, map).inspect(|dict| {
            for key in keys.iter().filter_map(Val::as_text) {
                dict.remove(&key.to_key());
            }
        })
    }),
    function!("merge", |cx| (into: Map; from: Map) => try merged(cx, into, from, false)),
    function!("mustMerge", |cx| (into: Map; from: Map) => try merged(cx, into, from, false)),
    function!("mergeOverwrite", |cx| (into: Map; from: Map) => try merged(cx, into, from, true)),
    function!("mustMergeOverwrite", |cx| (into: Map; from: Map) => try merged(cx, into, from, true)),
    function!("dig", (; path: Any) => try dig(path)),
    function!("deepCopy", |cx| (value: Any) => try deep_copy(cx, value, 0)),
    function!("mustDeepCopy", |cx| (value: Any) => try deep_copy(cx, value, 0)),
];

/// Creates a dictionary from alternating keys and values; a trailing key gets an empty text.
fn dict(pairs: &[Val]) -> Result<Dict, CallError> {
    let entries: Result<Vec<(Str, Val)>, CallError> = pairs
        .chunks(2)
        .map(|pair| match pair {
            [key, value] => Ok((to_text(key)?.to_key(), value.clone())),
            [key, ..] => Ok((to_text(key)?.to_key(), Val::from(""))),
            [] => Err(CallError::arguments()),
        })
        .collect();
    Ok(Dict::from_entries(entries?))
}

fn keys(cx: &mut Context, maps: &[Val]) -> Result<List, CallError> {
    let mut keys = Vec::new();
    for map in maps.iter().filter_map(Val::as_map) {
        cx.take_steps(map.len())?;
        keys.extend(map.entries().into_iter().map(|(key, _)| key));
    }
    Ok(List::texts(keys))
}

fn copied(cx: &mut Context, map: &Map) -> Result<Dict, CallError> {
    cx.take_steps(map.len())?;
    Ok(Dict::from_entries(map.entries()))
}

/// Merges the entries of `from` into `into`, recursively; an existing value is kept unless it is empty or `overwrite`
/// is set.
fn merged(cx: &mut Context, into: &Map, from: &[Val], overwrite: bool) -> Result<Dict, CallError> {
    let dict = into.to_dict();
    for map in from.iter().filter_map(Val::as_map) {
        merge(cx, &dict, map, overwrite, 0)?;
    }
    Ok(dict)
}

fn merge(cx: &mut Context, into: &Dict, from: &Map, overwrite: bool, depth: usize) -> Result<(), CallError> {
    if depth > Context::MAX_DEPTH {
        return Err("the dicts are nested too deeply to be merged".into());
    }
    cx.take_steps(from.len())?;
    for (key, value) in from.entries() {
        let there = into.get(&key);
        let set = match (&value, &there) {
            (value, _) if value.is_nil() => overwrite,
            (Val::Map(from), Some(Val::Map(map))) => {
                let inner = map.to_dict();
                merge(cx, &inner, from, overwrite, depth + 1)?;
                if !matches!(map, Map::Dict(_)) {
                    into.insert(key, inner.into())?;
                    continue;
                }
                inner.len() == 0
            }
            (_, None) => true,
            (_, Some(there)) => overwrite || is_empty(there),
        };
        if set {
            into.insert(key, value)?;
        }
    }
    Ok(())
}

/// Looks up a value in nested maps; the arguments are keys, a default and the map.
fn dig(path: &[Val]) -> Result<Val, CallError> {
    let [keys @ .., default, map] = path else {
        return Err("dig needs at least three arguments".into());
    };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let keys = keys.iter().map(|key| match key {
        Val::Text(key) => Ok(key.to_key()),
        other => Err(CallError::of_kind(other, format!("a key of dig is {}, not a text", other.in_words()))),
    });
    let mut at = map.clone();
    for key in keys.collect::<Result<Vec<_>, _>>()? {
        let map = match at {
            Val::Map(map) if !map.is_text() => map,
            other => {
                return Err(CallError::of_kind(&other, format!("dig found {} instead of a map", other.in_words())));
            }
        };
        match map.get(&key) {
            Some(next) => at = next,
            None => return Ok(default.clone()),
        }
    }
    Ok(at)
}

fn deep_copy(cx: &mut Context, value: &Val, depth: usize) -> Result<Val, CallError> {
    if depth > Context::MAX_DEPTH {
        return Err("the value is nested too deeply to be copied".into());
    }
    cx.take_steps(1)?;
    match value {
        nil if nil.is_nil() => Err("nil cannot be copied".into()),
        Val::Map(Map::Dict(dict)) => {
            let copy = dict
                .entries()
                .into_iter()
                .map(|(key, value)| Ok((key, deep_copy_inner(cx, &value, depth)?)))
                .collect::<Result<Vec<_>, CallError>>()?;
            Ok(Dict::from_entries(copy).into())
        }
        Val::List(list) if !list.is_nil() => {
            let copy = list.iter().map(|v| deep_copy_inner(cx, &v, depth)).collect::<Result<Vec<_>, CallError>>()?;
            Ok(List::of(list.elements(), copy).into())
        }
        // Other values are immutable, so sharing them is equivalent.
        other => Ok(other.clone()),
    }
}

/// Copies an inner value, which may be nil; only the outermost value may not be nil.
fn deep_copy_inner(cx: &mut Context, value: &Val, depth: usize) -> Result<Val, CallError> {
    if value.is_nil() { Ok(Val::Nil) } else { deep_copy(cx, value, depth + 1) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anabranch_record::value::{Object, Value};

    use super::*;

    fn call(name: &str, args: &[Val]) -> Val {
        let function = TABLE.iter().find(|f| f.name == name).unwrap();
        (function.call)(&mut Context::new(), args).unwrap()
    }

    #[test]
    fn maps_of_the_record_are_copied_before_they_are_changed() {
        let inner: Object = [("x", 1i64)].into_iter().collect();
        let object: Arc<Object> = Arc::new([("inner", Value::from(inner))].into_iter().collect());
        let before = object.clone();
        let map = || Val::Map(Map::Structured(object.clone()));
        let other = Dict::from_entries([("y".into(), Val::Int(2))]);
        let other = Dict::from_entries([("inner".into(), other.into()), ("z".into(), Val::Int(3))]);
        let merged = call("merge", &[map(), other.into()]);
        assert_eq!(crate::template::format::to_text(&merged).unwrap(), "map[inner:map[x:1 y:2] z:3]".into());
        call("set", &[map(), "inner".into(), Val::Int(0)]);
        call("unset", &[map(), "inner".into()]);
        assert_eq!(object, before);
    }

    #[test]
    fn a_dict_is_changed_where_it_is() {
        let dict = Dict::default();
        call("set", &[dict.clone().into(), "a".into(), Val::Int(1)]);
        assert_eq!(dict.len(), 1);
        let copy = call("deepCopy", &[dict.clone().into()]);
        call("set", &[copy, "b".into(), Val::Int(1)]);
        assert_eq!(dict.len(), 1);
    }
}
