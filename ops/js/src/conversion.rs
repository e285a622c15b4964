//! Values of records as JavaScript values, and back.
//!
//! | record | script | back |
//! | --- | --- | --- |
//! | null | `null` | null |
//! | bool | boolean | bool |
//! | integer up to 2^53 − 1 | number | integer, where it is whole |
//! | integer beyond | `BigInt` | integer |
//! | float | number | integer where it is whole and was not a float before, else float |
//! | text | string | text |
//! | bytes, raw data | `Uint8Array` | bytes, raw data |
//! | time | `Date` (milliseconds) | time; all digits, where the date was not changed |
//! | list | array | list |
//! | map | object | map |

pub(crate) mod enter;
pub(crate) mod leave;
pub(crate) mod path;
pub(crate) mod time;

#[cfg(test)]
mod tests;
