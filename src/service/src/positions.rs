//! Positions of sources in user-facing form: display, reset, rewind and import.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use anabranch_graph::plan::stage::StageKind;
use anabranch_plugin::state::StoreError;
use anabranch_record::Position;
use anabranch_record::mark::{LaneId, Mark, Partition};
use anabranch_record::text::Str;
use anabranch_store::Store;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::pipeline::Pipeline;

/// Prefix of positions that are not text: their bytes follow in base64.
const BASE64: &str = "base64:";
/// Text of the empty position.
const BEGINNING: &str = "(the beginning)";
/// Maximum characters of a position in a message.
const LONGEST_TOLD: usize = 200;

/// Formats a position: its text, or its bytes in base64.
pub fn shown(position: &Position) -> String {
    match std::str::from_utf8(&position.0) {
        Ok("") => BEGINNING.to_owned(),
        Ok(text) if !text.starts_with(BASE64) && text != BEGINNING && !text.chars().any(char::is_control) => {
            text.to_owned()
        }
        _ => format!("{BASE64}{}", STANDARD.encode(&position.0)),
    }
}

/// Shortens a position in the format of [`shown`] for a message.
pub fn brief(shown: &str) -> Cow<'_, str> {
    match shown.char_indices().nth(LONGEST_TOLD) {
        Some((end, _)) => format!("{}… ({} bytes)", &shown[..end], shown.len()).into(),
        None => shown.into(),
    }
}

/// Parses a position that a user wrote.
///
/// # Errors
/// Description of the error in the text.
pub fn parse(text: &str) -> Result<Position, String> {
    let bytes = match text.strip_prefix(BASE64) {
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| format!("the position is not base64: {error}"))?,
        None => text.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        Err("an empty position means the beginning: use a reset".to_owned())
    } else {
        Ok(Position::copy_from(&bytes))
    }
}

/// Parses a position in the format of [`shown`], including the beginning.
///
/// # Errors
/// Description of the error in the text.
pub fn parse_shown(text: &str) -> Result<Position, String> {
    if text == BEGINNING { Ok(Position::copy_from(b"")) } else { parse(text) }
}

/// Selection of sources.
#[derive(Clone, Debug, Default)]
pub struct PositionFilter {
    /// Only this connector.
    pub connector: Option<String>,
    /// Only this partition of it.
    pub partition: Option<String>,
}

/// Reason why no position changed.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// No such position exists.
    #[error("pipeline {pipeline} has no matching position")]
    None {
        /// The pipeline.
        pipeline: Str,
        /// The existing positions.
        known: Vec<String>,
    },
    /// The selection matches several lanes, but a position belongs to one source and partition.
    #[error("a position belongs to one source and partition, but the selection contains {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// The pipeline does not have this source.
    #[error("pipeline {pipeline} has no source {connector:?}")]
    NoSource {
        /// The pipeline.
        pipeline: Str,
        /// The given id.
        connector: String,
        /// Its sources.
        known: Vec<String>,
    },
    /// The source does not have partitions.
    #[error("{pipeline}:{connector} has no partition {partition:?}: the source has only one partition")]
    NoPartition {
        /// The pipeline.
        pipeline: Str,
        /// The source.
        connector: Str,
        /// The given partition.
        partition: Str,
    },
    /// A source cannot resume from the position.
    #[error("{pipeline}:{connector} cannot resume after {position}: {reason}")]
    Refused {
        /// The pipeline.
        pipeline: Str,
        /// The source.
        connector: Str,
        /// The position, shortened for a message.
        position: String,
        /// The reason.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Checks whether sources can resume from positions, before these replace others. `plan` is the compiled pipeline, if
/// known. Returns the sources that cannot check positions, such as those of plugin programs. Opens nothing.
///
/// # Errors
/// A source cannot resume from its position.
pub fn check<'a>(
    plan: Option<&Pipeline>,
    pipeline: &Str,
    given: impl IntoIterator<Item = (&'a LaneId, &'a Position)>,
) -> Result<BTreeSet<Str>, MoveError> {
    let reads = plan.into_iter().flat_map(|plan| &plan.compiled.stages.stages).filter_map(|stage| match &stage.kind {
        StageKind::Read(read) => Some((&read.connector, &read.source)),
        _ => None,
    });
    let sources: BTreeMap<_, _> = reads.collect();
    let mut unasked = BTreeSet::new();
    for (lane, position) in given {
        if lane.partition != Partition::ONLY && sources.get(&lane.connector).is_some_and(|it| !it.is_partitioned()) {
            return Err(MoveError::NoPartition {
                pipeline: pipeline.clone(),
                connector: lane.connector.clone(),
                partition: lane.partition.0.clone(),
            });
        }
        if position.0.is_empty() {
            continue;
        }
        match sources.get(&lane.connector).and_then(|source| source.check(position)) {
            Some(Ok(())) => {}
            Some(Err(fault)) => {
                return Err(MoveError::Refused {
                    pipeline: pipeline.clone(),
                    connector: lane.connector.clone(),
                    position: brief(&shown(position)).into_owned(),
                    reason: fault.message(),
                });
            }
            None => {
                unasked.insert(lane.connector.clone());
            }
        }
    }
    Ok(unasked)
}

/// Sets the positions from which sources of a pipeline resume, each in a new generation. If `really` is false, it only
/// returns what would change. The caller makes sure that the pipeline does not run.
///
/// `sources`: the sources of the pipeline; `None` to allow sources that it does not have yet.
/// `given`: the lane, its position, and the generation from which the position was exported (0: unknown). The new
/// generation is higher, so that a destination that stored marks for the same ids does not consider them newer.
///
/// # Errors
/// A lane does not belong to one of the sources, or the store failed. Nothing was changed.
pub async fn resume_from(
    store: &Store,
    pipeline: &Str,
    sources: Option<&[Str]>,
    given: &[(LaneId, Position, u64)],
    really: bool,
) -> Result<Vec<Moved>, MoveError> {
    if let Some(sources) = sources
        && let Some((lane, ..)) = given.iter().find(|(lane, ..)| !sources.contains(&lane.connector))
    {
        let known = sources.iter().map(Str::to_string).collect();
        return Err(MoveError::NoSource { pipeline: pipeline.clone(), connector: lane.connector.to_string(), known });
    }
    let stored = if really {
        let moves = |stored: &BTreeMap<LaneId, Mark>| {
            let mark = |(lane, position, exported): &(LaneId, Position, u64)| {
                let before = stored.get(lane).map_or(0, |mark| mark.generation);
                (lane.clone(), Mark { generation: before.max(*exported) + 1, seq: 0, position: position.clone() })
            };
            given.iter().map(mark).collect()
        };
        store.change_positions(pipeline, moves).await?
    } else {
        store.positions(pipeline).await?
    };
    let moved = |(lane, position, _): &(LaneId, Position, u64)| {
        let nothing = Mark::beginning(0);
        Moved::one(lane, stored.get(lane).unwrap_or(&nothing), position)
    };
    Ok(given.iter().map(moved).collect())
}

/// Moves sources to another position, or to the beginning if `to` is empty. Returns the lanes with their previous
/// marks. If `really` is false, nothing changes. The pipeline must not run.
///
/// # Errors
/// No lane matches, several match and `to` is not the beginning, or the store failed. Nothing was moved.
pub async fn go_on_after(
    store: &Store,
    pipeline: &Str,
    chosen: &PositionFilter,
    to: &Position,
    really: bool,
) -> Result<BTreeMap<LaneId, Mark>, MoveError> {
    let found = store.positions(pipeline).await?;
    let wanted = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
    let is_chosen =
        |lane: &LaneId| wanted(&chosen.connector, &lane.connector) && wanted(&chosen.partition, &lane.partition.0);
    let mut moves: BTreeMap<LaneId, Mark> =
        found.iter().filter(|(lane, _)| is_chosen(lane)).map(|(lane, mark)| (lane.clone(), mark.clone())).collect();
    if moves.is_empty() {
        return Err(MoveError::None { pipeline: pipeline.clone(), known: found.keys().map(name).collect() });
    }
    if moves.len() > 1 && !to.0.is_empty() {
        return Err(MoveError::Ambiguous(moves.keys().map(name).collect()));
    }
    if really {
        // The previous holder of the claim may have moved them until now.
        store
            .change_positions(pipeline, |latest| {
                for (lane, mark) in &mut moves {
                    *mark = latest.get(lane).unwrap_or(mark).clone();
                }
                let moved = |mark: &Mark| Mark { generation: mark.generation + 1, seq: 0, position: to.clone() };
                moves.iter().map(|(lane, mark)| (lane.clone(), moved(mark))).collect()
            })
            .await?;
    }
    Ok(moves)
}

/// A source or partition whose position changes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Moved {
    /// Its connector.
    pub connector: String,
    /// Empty if the source has only one partition.
    pub partition: String,
    /// Generation of the previous position.
    pub generation: u64,
    /// Records of that generation that were delivered and acknowledged.
    pub records: u64,
    /// The previous position.
    pub from: String,
    /// The position to resume after.
    pub to: String,
    /// True if its source confirmed that it can resume there. Otherwise the source checks the position when it is
    /// opened.
    #[serde(default)]
    pub checked: bool,
}

impl Moved {
    /// Combines lanes with their previous marks and the new position of all of them.
    pub fn all(moves: &BTreeMap<LaneId, Mark>, to: &Position) -> Vec<Moved> {
        moves.iter().map(|(lane, mark)| Moved::one(lane, mark, to)).collect()
    }

    /// Sets `checked`; `unasked` are the sources that cannot check positions.
    pub fn checked(mut all: Vec<Moved>, unasked: &BTreeSet<Str>) -> Vec<Moved> {
        all.iter_mut().for_each(|moved| moved.checked = !unasked.iter().any(|source| **source == *moved.connector));
        all
    }

    /// Returns the suffix of a message if the position was not checked.
    pub fn remark(&self) -> &'static str {
        if self.checked { "" } else { "; the position was not checked: the source reads it when it opens" }
    }

    fn one(lane: &LaneId, mark: &Mark, to: &Position) -> Moved {
        Moved {
            connector: lane.connector.to_string(),
            partition: lane.partition.0.to_string(),
            generation: mark.generation,
            records: mark.seq,
            from: shown(&mark.position),
            to: shown(to),
            checked: false,
        }
    }
}

/// Returns the connector of a lane, with the partition if it has one.
pub fn name(lane: &LaneId) -> String {
    match lane.partition.0.as_str() {
        "" => lane.connector.to_string(),
        partition => format!("{} (partition {partition})", lane.connector),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_position_is_cut_in_messages() {
        assert_eq!(brief("é".repeat(200).as_str()), "é".repeat(200));
        let long = "é".repeat(100_000);
        let told = brief(&long);
        assert!(told.ends_with("é… (200000 bytes)") && told.chars().count() < 220, "{told}");
    }

    #[test]
    fn positions_are_shown_as_text_where_they_are_text() {
        let text = |bytes: &[u8]| shown(&Position::copy_from(bytes));
        assert_eq!(text(b""), "(the beginning)");
        assert_eq!(text(br#"{"offset":12}"#), r#"{"offset":12}"#);
        assert_eq!(text(b"\xff\x00"), "base64:/wA=");
        // The text contains characters of the other form.
        assert_eq!(text(b"base64:x"), "base64:YmFzZTY0Ong=");
        assert_eq!(text(b"a\nb"), "base64:YQpi");
        assert_eq!(text(b"(the beginning)"), "base64:KHRoZSBiZWdpbm5pbmcp");
        for bytes in [&b""[..], b"plain", b"\xff\x00", b"base64:x", b"(the beginning)", b"a\nb"] {
            assert_eq!(parse_shown(&text(bytes)).unwrap().0, bytes, "what is exported is imported as it was");
        }
    }
}
