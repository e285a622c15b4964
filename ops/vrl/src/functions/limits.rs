//! Limits of functions.

use std::ffi::{c_uint, c_ulong};
use std::sync::Once;

use vrl::compiler::function::FunctionCompileContext;
use vrl::compiler::{CompileConfig, ExpressionError};

use crate::weight::MOST_LEVELS;

/// Maximum number of times that the search for one grok pattern in one text steps back. The library's own limit is for
/// each position in the text at which a match can begin, so that the time of a search is quadratic.
const MOST_RETRIES: c_ulong = 2_000_000;

/// Maximum number of places that such a search remembers, of about 64 bytes each.
const MOST_PLACES: c_uint = 500_000;

/// Maximum size in bytes of a value that a function makes, as the compiler passes it to functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MostBytes(pub(crate) usize);

/// Default of [`MostBytes`].
pub(crate) const MOST_BYTES: MostBytes = MostBytes(16 << 20);

impl MostBytes {
    /// Passes the limit to the functions of a program.
    pub(crate) fn configure(self, config: &mut CompileConfig) {
        config.set_custom(self);
    }

    /// Returns the limit for the function that is compiled.
    pub(super) fn of(context: &FunctionCompileContext) -> MostBytes {
        context.get_external_context().copied().unwrap_or(MOST_BYTES)
    }

    /// Checks the weight of a result.
    ///
    /// # Errors
    /// It is above the limit.
    pub(super) fn check(self, bytes: usize) -> Result<(), ExpressionError> {
        match bytes > self.0 {
            true => Err(self.exceeded()),
            false => Ok(()),
        }
    }

    #[cold]
    fn exceeded(self) -> ExpressionError {
        format!("the result would have more than {} bytes, or more than {MOST_LEVELS} levels", self.0).into()
    }
}

/// Limits the back-tracking of `parse_grok` and `parse_groks`, which no function of the library does. Only these functions
/// use Oniguruma in this process.
pub(super) fn limit_back_tracking() {
    static LIMITED: Once = Once::new();
    LIMITED.call_once(|| {
        set_search_limits(MOST_RETRIES, MOST_PLACES);
    });
}

#[allow(unsafe_code, reason = "the safe interface sets these limits only for searches that it starts itself")]
fn set_search_limits(retries: c_ulong, places: c_uint) {
    // SAFETY: both functions store a number, which a search copies when it begins. All values are valid. Programs are
    // compiled before they search, so no search runs while the numbers are first stored.
    unsafe {
        onig_sys::onig_set_retry_limit_in_search(retries);
        onig_sys::onig_set_retry_limit_in_match(retries);
        onig_sys::onig_set_match_stack_limit_size(places);
    }
}
