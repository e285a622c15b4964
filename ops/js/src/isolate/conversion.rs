//! Conversion of record values to JavaScript values, and back.
//!
//! | record | script | back |
//! | --- | --- | --- |
//! | null | `null` | null |
//! | bool | boolean | bool |
//! | integer up to 2^53 − 1 | number | integer, if it is whole |
//! | larger integer | `BigInt` | integer |
//! | float | number | integer if it is whole and was not a float before, otherwise float |
//! | text | string | text |
//! | bytes, raw data | `Uint8Array` | bytes, raw data |
//! | time | `Date` (milliseconds) | time; with all digits if the date is unchanged |
//! | list | array | list |
//! | map | object | map |

pub(crate) mod enter;
pub(crate) mod leave;
pub(crate) mod path;
pub(crate) mod time;

#[cfg(test)]
mod tests;
