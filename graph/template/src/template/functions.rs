//! The functions that templates may call, and the names of functions that are rejected.
//!
//! A function declares the Go types of its parameters. The evaluator counts arguments, converts
//! literals and checks types before the call, so a function may match its arguments exhaustively on
//! the declared types; all other cases are [`CallError::arguments`].

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use anabranch_record::text::Str;
use tokio::time::Instant;

use super::Reason;
use super::doubt::Doubts;
use super::val::Val;
use crate::processor_time::taken_by_thread;

#[cfg(test)]
mod answers;
mod cast;
pub mod conversion;
mod dates;
mod defaults;
mod dicts;
mod encoding;
mod equality;
mod hashes;
mod json;
mod lists;
mod math;
pub(super) mod methods;
mod paths;
mod random;
mod reflection;
mod regex;
mod semver;
mod signature;
mod strings;
mod urls;

pub use dates::{has_element, is_duration, unsupported_zone};
pub use regex::invalid_pattern;

/// A function that templates may call.
#[derive(Debug)]
pub struct Function {
    /// The name in templates.
    pub name: &'static str,
    /// Types of the fixed parameters.
    pub params: &'static [Param],
    /// Type of additional arguments; `None` if the function does not accept any.
    pub rest: Option<Param>,
    /// True if equal arguments always give an equal result, without side effects; false for `now` and `uuidv4`.
    /// A function that changes its argument (`set`) is pure for literals and may set this to `true`.
    pub pure: bool,
    /// The implementation. The arguments match `params` and `rest`.
    pub(crate) call: fn(&mut Context, &[Val]) -> Result<Val, CallError>,
}

impl Function {
    /// Creates a pure function with a fixed number of parameters.
    pub(crate) const fn new(
        name: &'static str,
        params: &'static [Param],
        call: fn(&mut Context, &[Val]) -> Result<Val, CallError>,
    ) -> Function {
        Function { name, params, rest: None, pure: true, call }
    }

    /// Returns the same function, with additional arguments of type `rest`.
    pub(crate) const fn variadic(self, rest: Param) -> Function {
        Function { rest: Some(rest), ..self }
    }

    /// Returns the same function, marked as not pure.
    pub(crate) const fn impure(self) -> Function {
        Function { pure: false, ..self }
    }
}

/// The Go type of a parameter, which determines the values that the function receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// `interface{}`: any value; each nil arrives as [`Val::Nil`].
    Any,
    /// `reflect.Value`, for the builtins only: any value, and the three nils stay distinct.
    Reflect,
    /// `string`: [`Val::Text`].
    Text,
    /// `bool`: [`Val::Bool`].
    Bool,
    /// `int`: [`Val::Int`].
    Int,
    /// `float64`: [`Val::Float`].
    Float,
    /// `map[string]interface{}`: [`Val::Map`], never a `map[string]string`; nil arrives as
    /// [`Map::Nil`](super::val::Map).
    Map,
    /// `time.Time`: [`Val::Time`].
    Time,
}

/// A failure of a call, without the prefix `error calling name: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CallError {
    message: Str,
    /// The kind of the failure: other data may avoid it, or not.
    pub(crate) reason: Reason,
}

impl CallError {
    /// The arguments do not match the parameters. Cannot happen if `params` is correct.
    pub(crate) fn arguments() -> CallError {
        "wrong arguments".into()
    }

    /// The function does not take values of the kind of `val`.
    pub(crate) fn of_kind(val: &Val, message: impl Into<Str>) -> CallError {
        CallError { message: message.into(), reason: if val.is_nil() { Reason::Lacking } else { Reason::Kind } }
    }

    /// A value is missing or null.
    pub(crate) fn lacking(message: &str) -> CallError {
        CallError { message: message.into(), reason: Reason::Lacking }
    }

    /// The template fails on purpose.
    pub(crate) fn on_purpose(message: &str) -> CallError {
        CallError { message: message.into(), reason: Reason::Purpose }
    }
}

impl From<&str> for CallError {
    fn from(message: &str) -> CallError {
        CallError { message: message.into(), reason: Reason::Content }
    }
}

impl From<String> for CallError {
    fn from(message: String) -> CallError {
        CallError { message: message.into(), reason: Reason::Content }
    }
}

/// Cost limits of one rendering.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Bytes of text that the rendering may build, including intermediate results.
    pub bytes: usize,
    /// Iterations of `range`, template calls and elements that functions create.
    pub steps: usize,
}

/// The remaining cost limits of one rendering. Users write templates, which run on every record, so a template must
/// not be able to exhaust the resources of the process.
#[derive(Debug)]
pub(crate) struct Context {
    bytes: usize,
    steps: usize,
    /// Observations that the caller requests in addition to the output. Usually none.
    watch: Option<Box<RequestedObservations>>,
    /// True if the rendering has requested more than was left.
    spent: bool,
}

/// Deadline of a rendering, which has passed only if both times have passed. A thread that is not scheduled uses no
/// processor time, and in a simulation with a stopped clock no deadline ever passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// Clock time.
    time: Instant,
    /// Processor time of the thread.
    taken: Duration,
}

impl Deadline {
    /// Returns the deadline after `time` from now, on this thread.
    pub(crate) fn within(time: Duration) -> Deadline {
        Deadline { time: Instant::now() + time, taken: taken_by_thread().saturating_add(time) }
    }

    /// Returns the remaining processor time.
    pub(crate) fn left(self) -> Duration {
        self.taken.saturating_sub(taken_by_thread())
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.time && self.left().is_zero()
    }
}

/// Observations that the caller of a rendering requests in addition to the output.
#[derive(Debug, Default)]
struct RequestedObservations {
    /// The deadline.
    until: Option<Deadline>,
    /// The doubtful results so far, if the caller requests them.
    doubts: Option<Doubts>,
}

impl Context {
    /// Maximum of [`Allowance::bytes`].
    pub(crate) const MAX_BYTES: usize = 256 << 20;
    /// Maximum of [`Allowance::steps`].
    pub(crate) const MAX_STEPS: usize = 10_000_000;
    /// Maximum nesting of values that are printed, encoded or traversed.
    pub(crate) const MAX_DEPTH: usize = 128;

    /// Creates a context with the full allowance.
    pub(crate) const fn new() -> Context {
        Context::within(Allowance { bytes: Self::MAX_BYTES, steps: Self::MAX_STEPS })
    }

    /// Creates a context with the given allowance.
    pub(crate) const fn within(Allowance { bytes, steps }: Allowance) -> Context {
        Context { bytes, steps, watch: None, spent: false }
    }

    /// Adds a deadline. It is checked at each step and each function call.
    pub(crate) fn until(mut self, until: Deadline) -> Context {
        self.watch.get_or_insert_default().until = Some(until);
        self
    }

    /// Enables the collection of doubtful results.
    pub(crate) fn with_doubts(mut self) -> Context {
        self.watch.get_or_insert_default().doubts = Some(Doubts::default());
        self
    }

    /// Returns `true` if calls need checks: there is a deadline, or doubtful results are collected.
    #[inline]
    pub(crate) const fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Returns the collection of doubtful results, if it is enabled.
    pub(crate) fn doubts(&mut self) -> Option<&mut Doubts> {
        self.watch.as_mut()?.doubts.as_mut()
    }

    /// Returns the collected doubts.
    pub(crate) fn into_doubts(self) -> Doubts {
        self.watch.and_then(|watch| watch.doubts).unwrap_or_default()
    }

    /// Returns the remaining steps.
    pub(crate) const fn steps_left(&self) -> usize {
        self.steps
    }

    /// Creates a context with a small allowance, to test at compile time whether a template has the same result for all
    /// records. The allowance is small because a file may contain thousands of templates.
    pub(crate) const fn brief() -> Context {
        Context::within(Allowance { bytes: 64 << 10, steps: 1000 })
    }

    /// Returns `true` if the allowance is exhausted.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Subtracts `bytes` from the allowance. Call it *before* building something whose size an argument
    /// determines (`repeat`, `indent`, `until`); results proportional to the size of the arguments need no call.
    ///
    /// # Errors
    /// The allowance is exhausted.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), CallError> {
        let left = self.bytes.checked_sub(bytes);
        self.spent |= left.is_none();
        self.bytes = left.ok_or("the template builds more than 256 MiB of text")?;
        Ok(())
    }

    /// Subtracts `steps` from the allowance, for list elements to create and loop iterations.
    ///
    /// # Errors
    /// The allowance is exhausted.
    pub(crate) fn take_steps(&mut self, steps: usize) -> Result<(), CallError> {
        let left = self.steps.checked_sub(steps);
        self.spent |= left.is_none();
        self.steps = left.ok_or("the template needs more than 10 000 000 steps")?;
        self.take_time()
    }

    /// Checks the deadline, if there is one.
    ///
    /// # Errors
    /// The deadline has passed.
    #[inline]
    pub(crate) fn take_time(&mut self) -> Result<(), CallError> {
        let until = self.watch.as_ref().and_then(|watch| watch.until);
        match until {
            Some(until) if until.is_over() => {
                self.spent = true;
                Err("the template exceeds its time limit".into())
            }
            _ => Ok(()),
        }
    }
}

/// All tables. To add a file of functions, add its `mod` line above and its `TABLE` here.
pub(super) static TABLES: &[&[Function]] = &[
    super::builtins::TABLE,
    dates::TABLE,
    defaults::TABLE,
    dicts::TABLE,
    encoding::TABLE,
    hashes::TABLE,
    json::TABLE,
    lists::TABLE,
    lists::TWINS,
    math::TABLE,
    paths::TABLE,
    random::TABLE,
    reflection::TABLE,
    regex::TABLE,
    semver::TABLE,
    strings::TABLE,
    urls::TABLE,
];

/// Names of sprig functions that are rejected deliberately, with the reason.
pub(super) static REFUSED: &[(&[&str], &str)] = &[
    (&["env", "expandenv"], "templates do not read the environment; write ${NAME} in the pipeline file instead"),
    (&["getHostByName"], "templates do not use the network"),
    (
        &[
            "genPrivateKey",
            "genCA",
            "genCAWithKey",
            "genSelfSignedCert",
            "genSelfSignedCertWithKey",
            "genSignedCert",
            "genSignedCertWithKey",
            "buildCustomCert",
            "derivePassword",
            "htpasswd",
            "bcrypt",
            "encryptAES",
            "decryptAES",
        ],
        "templates do not create keys or certificates",
    ),
];

/// Returns the function with the given name.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Function>> =
        LazyLock::new(|| TABLES.iter().flat_map(|table| table.iter()).map(|f| (f.name, f)).collect());
    BY_NAME.get(name).copied()
}

/// Returns the reason why a function name is rejected, if it is.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}

/// Returns all names, for suggestions.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.iter()).map(|f| f.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once_and_none_is_refused() {
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|name| refusal(name).is_none()));
    }
}
