//! Findings that several processors have before the first record.

use anabranch_graph::flow::{Flow, Found, Kinds};
use anabranch_graph::reference::Reference;

/// Whether what was found is there in every record and of these kinds.
pub(crate) fn is_always(found: &Found, kinds: Kinds) -> bool {
    !found.missing && found.ty.kinds != Kinds::NONE && found.ty.kinds.within(kinds)
}

/// Every record fails, for what was found at the setting `field`.
pub(crate) fn fail(flow: &mut Flow, field: &Reference, found: &Found, why: &str) {
    let what = found.names();
    let message = format!("every record fails here: {field} is {what} {why}");
    flow.fail("flow.wrong_type", "field", message, Some((found.ty.since, format!("{what} since here"))), None);
}
