//! Where sources go on, as people see it and change it.

use std::collections::BTreeMap;

use anabranch_graph::record::Position;
use anabranch_graph::source::Mark;
use anabranch_graph::state::{LaneId, StateStore as _, StoreError};
use anabranch_graph::text::Str;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::store::Store;

/// Bytes that are no text are written so, and read so.
const BASE64: &str = "base64:";

/// A position as people see it: its text, or its bytes in base64.
pub fn shown(position: &Position) -> String {
    match std::str::from_utf8(&position.0) {
        Ok("") => "(the beginning)".to_owned(),
        Ok(text) if !text.starts_with(BASE64) && !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("{BASE64}{}", STANDARD.encode(&position.0)),
    }
}

/// A position as people write it.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Position, String> {
    let bytes = match text.strip_prefix(BASE64) {
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| format!("this is not base64: {error}"))?,
        None => text.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        Err("an empty position is the beginning: reset it".to_owned())
    } else {
        Ok(Position::copy_from(&bytes))
    }
}

/// Which sources are meant.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Only this connector.
    pub connector: Option<String>,
    /// Only this partition of it.
    pub partition: Option<String>,
}

/// Why nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// There is no such position.
    #[error("pipeline {pipeline} has no such position")]
    None {
        /// The pipeline.
        pipeline: Str,
        /// What there is.
        known: Vec<String>,
    },
    /// A position belongs to one source and partition.
    #[error("a position belongs to one source and partition, here are {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lets sources go on after another position, the beginning if it is empty; with `really` unset it only says which, and
/// where they are. Nobody runs the pipeline.
///
/// # Errors
/// There is no such source, or there are several; the store failed. Nothing was moved.
pub async fn go_on_after(
    store: &Store,
    pipeline: &Str,
    chosen: &Chosen,
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
        let epoch = store.claim(pipeline).await?;
        // Whoever had the claim before may have moved them until now.
        let latest = store.load(&epoch).await?;
        for (lane, mark) in &mut moves {
            *mark = latest.get(lane).unwrap_or(mark).clone();
        }
        let marks: Vec<(LaneId, Mark)> = moves
            .iter()
            .map(|(lane, mark)| (lane.clone(), Mark { generation: mark.generation + 1, seq: 0, position: to.clone() }))
            .collect();
        store.commit(&epoch, &marks).await?;
    }
    Ok(moves)
}

/// A source, or a partition of it, that goes on elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Moved {
    /// Its connector.
    pub connector: String,
    /// Empty where the source has only one.
    pub partition: String,
    /// Of the position that it had.
    pub generation: u64,
    /// Records of that generation that were delivered and acknowledged.
    pub records: u64,
    /// The position that it had.
    pub from: String,
    /// The position that it goes on after.
    pub to: String,
}

impl Moved {
    /// Lanes with the marks that they had, and where all of them go on.
    pub fn all(moves: &BTreeMap<LaneId, Mark>, to: &Position) -> Vec<Moved> {
        let moved = |(lane, mark): (&LaneId, &Mark)| Moved {
            connector: lane.connector.to_string(),
            partition: lane.partition.0.to_string(),
            generation: mark.generation,
            records: mark.seq,
            from: shown(&mark.position),
            to: shown(to),
        };
        moves.iter().map(moved).collect()
    }
}

/// A lane by its connector, and its partition where it has one.
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
    fn positions_are_shown_as_text_where_they_are_text() {
        let text = |bytes: &[u8]| shown(&Position::copy_from(bytes));
        assert_eq!(text(b""), "(the beginning)");
        assert_eq!(text(br#"{"offset":12}"#), r#"{"offset":12}"#);
        assert_eq!(text(b"\xff\x00"), "base64:/wA=");
        // What could be taken for the other form is in it.
        assert_eq!(text(b"base64:x"), "base64:YmFzZTY0Ong=");
        assert_eq!(text(b"a\nb"), "base64:YQpi");
    }
}
