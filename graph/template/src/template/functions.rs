//! The functions that templates may call, and those they may not.
//!
//! A function declares the Go types of its parameters. The evaluator counts arguments, converts
//! literals and checks types before the call, so a function may match its arguments exhaustively on
//! what its parameters promise; anything else is [`CallError::arguments`].

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use anabranch_record::clock;
use anabranch_record::text::Str;
use tokio::time::Instant;

use super::doubt::Doubts;
use super::val::Val;

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

pub use dates::{has_element, is_duration};
pub use regex::invalid_pattern;

/// A function.
#[derive(Debug)]
pub struct Function {
    /// The name in templates.
    pub name: &'static str,
    /// Types of the fixed parameters.
    pub params: &'static [Param],
    /// Type of any further arguments; `None` = there may be none.
    pub rest: Option<Param>,
    /// Whether equal arguments always give an equal result, without an effect. `now` and `uuidv4` do not.
    /// A function that changes its argument (`set`) is pure for literals and may say `true`.
    pub pure: bool,
    /// Calls it. The arguments fit `params` and `rest`.
    pub(crate) call: fn(&mut Context, &[Val]) -> Result<Val, CallError>,
}

impl Function {
    /// A pure function with a fixed number of parameters.
    pub(crate) const fn new(
        name: &'static str,
        params: &'static [Param],
        call: fn(&mut Context, &[Val]) -> Result<Val, CallError>,
    ) -> Function {
        Function { name, params, rest: None, pure: true, call }
    }

    /// The same with further arguments of type `rest`.
    pub(crate) const fn variadic(self, rest: Param) -> Function {
        Function { rest: Some(rest), ..self }
    }

    /// The same, not pure.
    pub(crate) const fn impure(self) -> Function {
        Function { pure: false, ..self }
    }
}

/// The Go type of a parameter, and what the function then receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// `interface{}`: anything; each nil arrives as [`Val::Nil`].
    Any,
    /// `reflect.Value`, for the builtins only: anything, the three nils told apart.
    Reflect,
    /// `string`: [`Val::Text`].
    Text,
    /// `bool`: [`Val::Bool`].
    Bool,
    /// `int`: [`Val::Int`].
    Int,
    /// `float64`: [`Val::Float`].
    Float,
    /// `map[string]interface{}`: [`Val::Map`], never a `map[string]string`; nil arrives as [`Map::Nil`](super::val::Map).
    Map,
    /// `time.Time`: [`Val::Time`].
    Time,
}

/// Why a call failed; `error calling name: ` is put before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CallError(pub(crate) Str);

impl CallError {
    /// The arguments are not what the parameters promise. Cannot happen when `params` is right.
    pub(crate) fn arguments() -> CallError {
        "wrong arguments".into()
    }
}

impl From<&str> for CallError {
    fn from(message: &str) -> CallError {
        CallError(message.into())
    }
}

impl From<String> for CallError {
    fn from(message: String) -> CallError {
        CallError(message.into())
    }
}

/// What one rendering may use at most.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Bytes of text it may build, intermediate results included.
    pub bytes: usize,
    /// Iterations of `range`, template calls and elements made by functions.
    pub steps: usize,
}

/// What one rendering may still use. Templates come from users and run on every record: none may
/// take the process down.
#[derive(Debug)]
pub(crate) struct Context {
    bytes: usize,
    steps: usize,
    /// What a caller wants besides the output. Most callers want nothing.
    watch: Option<Box<Watch>>,
    /// More was asked for than there was.
    spent: bool,
}

/// When a rendering must be done: both times must be over. A thread that does not get to run takes no processor time, and
/// where time stands still, as in a simulation, none is ever over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// By the clock.
    time: Instant,
    /// Processor time of the thread.
    taken: Duration,
}

impl Deadline {
    /// So long from now, on this thread.
    pub(crate) fn within(time: Duration) -> Deadline {
        Deadline { time: Instant::now() + time, taken: clock::taken_by_thread().saturating_add(time) }
    }

    /// How much of the processor time is left.
    pub(crate) fn left(self) -> Duration {
        self.taken.saturating_sub(clock::taken_by_thread())
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.time && self.left().is_zero()
    }
}

/// What a caller of a rendering wants besides the output.
#[derive(Debug, Default)]
struct Watch {
    /// When it must be done.
    until: Option<Deadline>,
    /// The doubtful results so far, where the caller asks for them.
    doubts: Option<Doubts>,
}

impl Context {
    /// Most [`Allowance::bytes`].
    pub(crate) const MAX_BYTES: usize = 256 << 20;
    /// Most [`Allowance::steps`].
    pub(crate) const MAX_STEPS: usize = 10_000_000;
    /// How deep values may nest when they are printed, encoded or walked.
    pub(crate) const MAX_DEPTH: usize = 128;

    /// The full allowance.
    pub(crate) const fn new() -> Context {
        Context::within(Allowance { bytes: Self::MAX_BYTES, steps: Self::MAX_STEPS })
    }

    /// This allowance.
    pub(crate) const fn within(Allowance { bytes, steps }: Allowance) -> Context {
        Context { bytes, steps, watch: None, spent: false }
    }

    /// The same, until a deadline as well. It is looked at with each step and each call of a function.
    pub(crate) fn until(mut self, until: Deadline) -> Context {
        self.watch.get_or_insert_default().until = Some(until);
        self
    }

    /// The same, and doubtful results are noted.
    pub(crate) fn with_doubts(mut self) -> Context {
        self.watch.get_or_insert_default().doubts = Some(Doubts::default());
        self
    }

    /// Whether calls must be looked at: there is a point in time, or doubtful results are noted.
    #[inline]
    pub(crate) const fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Where doubtful results are noted.
    pub(crate) fn doubts(&mut self) -> Option<&mut Doubts> {
        self.watch.as_mut()?.doubts.as_mut()
    }

    /// What was noted.
    pub(crate) fn into_doubts(self) -> Doubts {
        self.watch.and_then(|watch| watch.doubts).unwrap_or_default()
    }

    /// Steps that are left.
    pub(crate) const fn steps_left(&self) -> usize {
        self.steps
    }

    /// What is spent on finding out, before there are any records, whether a template says the same of all of them: a
    /// file may hold thousands of templates.
    pub(crate) const fn brief() -> Context {
        Context::within(Allowance { bytes: 64 << 10, steps: 1000 })
    }

    /// Whether the allowance was used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Takes `bytes` of the allowance. Call it *before* building something whose size an argument
    /// decides (`repeat`, `indent`, `until`): what is proportional to the arguments' own size needs no call.
    ///
    /// # Errors
    /// When the allowance is used up.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), CallError> {
        let left = self.bytes.checked_sub(bytes);
        self.spent |= left.is_none();
        self.bytes = left.ok_or("the template builds more than 256 MiB of text")?;
        Ok(())
    }

    /// Takes `steps` of the allowance: list elements to be made, loop iterations.
    ///
    /// # Errors
    /// When the allowance is used up.
    pub(crate) fn take_steps(&mut self, steps: usize) -> Result<(), CallError> {
        let left = self.steps.checked_sub(steps);
        self.spent |= left.is_none();
        self.steps = left.ok_or("the template takes more than 10 000 000 steps")?;
        self.take_time()
    }

    /// Looks at the clock, where there is a deadline.
    ///
    /// # Errors
    /// When that is over.
    #[inline]
    pub(crate) fn take_time(&mut self) -> Result<(), CallError> {
        let until = self.watch.as_ref().and_then(|watch| watch.until);
        match until {
            Some(until) if until.is_over() => {
                self.spent = true;
                Err("the template takes longer than it may".into())
            }
            _ => Ok(()),
        }
    }
}

/// All tables. A file of functions adds its `mod` line above and its `TABLE` here.
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

/// Names that sprig has and that are refused on purpose, with the reason.
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
        "templates do not make keys or certificates",
    ),
];

/// The function of that name.
pub fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Function>> =
        LazyLock::new(|| TABLES.iter().flat_map(|table| table.iter()).map(|f| (f.name, f)).collect());
    BY_NAME.get(name).copied()
}

/// Why a function of that name is refused, if it is.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}

/// All names, for suggestions.
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
