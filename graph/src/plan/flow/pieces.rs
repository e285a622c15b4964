//! Differences between records that were split from one record.

use anabranch_plugin::flow::{RecordShape, ShapeOrigin, SplitRecords};
use anabranch_plugin::operator::{Class, Fan};
use anabranch_record::access::Access;
use anabranch_record::text::Str;

use crate::plan::graph::{Node, OperatorNode};

/// Returns the differences after a processor, derived from those before it. O(paths).
pub(super) fn after(node: &Node, step: &OperatorNode, into: &RecordShape) -> Option<SplitRecords> {
    let signature = &step.signature;
    let written = &signature.writes;
    if signature.fan.multiplies() {
        let before = into.pieces.as_ref().map(|pieces| pieces.own.clone());
        let own = Access::union(before.into_iter().chain([written.clone()]));
        return Some(SplitRecords {
            step: node.id.clone(),
            own,
            index: index(written),
            since: ShapeOrigin::at(node.span),
        });
    }
    let pieces = into.pieces.clone()?;
    let chosen = step.guard.as_ref().is_some_and(|guard| guard.condition.reads().overlaps(&pieces.own));
    // A function with a different result on each call counts as a read of the parts that differ.
    let differs = chosen || signature.reads.overlaps(&pieces.own) || step.operator.class() != Class::Inline;
    let own = match (signature.fan, differs) {
        // It is unknown which pieces remain.
        (Fan::Never | Fan::AtMostOne, true) => Access::Everything,
        (_, true) => Access::union([pieces.own, written.clone()]),
        (_, false) => pieces.own,
    };
    Some(SplitRecords { own, ..pieces })
}

/// Returns the metadata key that holds the index of a piece.
fn index(written: &Access) -> Option<Str> {
    let Access::These(paths) = written else { return None };
    paths.iter().find_map(|path| match &path[..] {
        [metadata, name] if **metadata == *"Metadata" && name.ends_with(".index") => Some(name.clone()),
        _ => None,
    })
}
