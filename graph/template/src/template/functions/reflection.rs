//! Types of values.

use super::Function;
use super::equality::equal;
use super::signature::function;

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("typeOf", (value: Any) => value.type_name()),
    function!("typeIs", (name: Text, value: Any) => name.as_bytes() == value.type_name().as_bytes()),
    function!("typeIsLike", (name: Text, value: Any) => {
        let is = value.type_name();
        name.as_bytes() == is.as_bytes() || Some(name.as_bytes()) == is.strip_prefix('*').map(str::as_bytes)
    }),
    function!("kindOf", (value: Any) => value.kind_name()),
    function!("kindIs", (name: Text, value: Any) => name.as_bytes() == value.kind_name().as_bytes()),
    function!("deepEqual", |cx| (a: Any, b: Any) => try equal(cx, a, b)),
];
