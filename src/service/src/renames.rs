//! Detection of renamed pipelines and sources. Positions are stored by id: under a new id a source reads from its
//! beginning, and everything is delivered again.

use std::fmt;

use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;

use anabranch_store::{Store, StoredConnector, StoredPipeline};

/// A source without a position that seems to replace one with a position.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RereadSource {
    /// The source that reads from its beginning, as `pipeline:connector`.
    pub source: String,
    /// The source that has a position, as `pipeline:connector`.
    pub replaces: String,
    /// Records that the replaced source delivered since its position was last copied or moved. They are delivered
    /// again.
    pub records: u64,
}

impl fmt::Display for RereadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RereadSource { source, replaces, records } = self;
        // The count of a copied or moved position begins at the copy.
        let again = match records {
            0 => "all its records are".to_owned(),
            1 => "at least 1 record is".to_owned(),
            records => format!("at least {records} records are"),
        };
        write!(
            f,
            "source {source} has no position and reads from its beginning: if it replaces {replaces}, {again} delivered \
             again. To resume from the position of {replaces} instead, first run \
             `anabranch positions copy {replaces} {source} --new --yes`"
        )
    }
}

/// Returns the sources of `new` that read from their beginning although they seem to replace others. `old` is the
/// stored pipeline. `gone` lists pipelines that files do not declare any more.
///
/// # Errors
/// The store cannot be read.
pub async fn rereads(
    store: &Store,
    old: Option<&StoredPipeline>,
    new: &StoredPipeline,
    gone: &[StoredPipeline],
) -> Result<Vec<RereadSource>, StoreError> {
    let was = |source: &StoredConnector| {
        let connectors = old.into_iter().flat_map(|old| old.connectors.iter().chain(&old.detached_connectors));
        connectors.filter(|was| was.is_source()).any(|was| was.id == source.id)
    };
    let added: Vec<_> = new.connectors.iter().filter(|source| source.is_source() && !was(source)).collect();
    if added.is_empty() {
        return Ok(Vec::new());
    }
    let known = store.positions(&new.id).await?;
    let mut found = Vec::new();
    for source in added.into_iter().filter(|source| !known.keys().any(|lane| lane.connector == source.id)) {
        let mut candidates = Vec::new();
        if let Some(old) = old {
            let stays = |was: &StoredConnector| new.connectors.iter().any(|is| is.is_source() && is.id == was.id);
            let left =
                old.connectors.iter().filter(|was| was.is_source() && !stays(was) && was.plugin == source.plugin);
            candidates.extend(left.map(|was| (&old.id, was)));
        }
        for pipeline in gone.iter().filter(|gone| gone.id != new.id) {
            let same = |was: &&StoredConnector| {
                was.is_source() && was.plugin == source.plugin && was.settings == source.settings
            };
            candidates.extend(pipeline.connectors.iter().filter(same).map(|was| (&pipeline.id, was)));
        }
        for (pipeline, was) in candidates {
            let records = delivered(store, pipeline, &was.id).await?;
            if let Some(records) = records {
                found.push(RereadSource {
                    source: format!("{}:{}", new.id, source.id),
                    replaces: format!("{pipeline}:{}", was.id),
                    records,
                });
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the number of delivered records of a source; `None` if it has no position.
async fn delivered(store: &Store, pipeline: &Str, connector: &Str) -> Result<Option<u64>, StoreError> {
    let marks = store.positions(pipeline).await?;
    let mut marks: Vec<_> =
        marks.iter().filter(|(lane, _)| lane.connector == *connector).map(|(_, mark)| mark.seq).collect();
    if marks.is_empty() {
        let set_aside = store.detached_marks(pipeline).await?;
        marks = set_aside.iter().filter(|(lane, _)| lane.connector == *connector).map(|(_, mark)| mark.seq).collect();
    }
    Ok((!marks.is_empty()).then(|| marks.iter().sum()))
}
