//! Copies of everything from one store to another, of whatever form.

use anabranch_plugin::state::StoreError;
use anabranch_record::text::Str;

use super::Store;
use crate::contents::{Contents, LetterCounter, NumberedLetters};
use crate::letters::{LetterAnswer, LetterQuery, weight};
use crate::request::{Read, ReadResult, Write, WriteResult, contradiction};

/// Number of dead letters that are read at once, at most; fewer if they are large.
const PAGE: usize = 1000;

/// Why a store cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The store to copy to has contents.
    #[error("the store has contents already: nothing was copied")]
    NotEmpty,
    /// The store to copy has none.
    #[error("the store has no contents: there is nothing to copy")]
    Nothing,
    /// One of the stores failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedCounts {
    /// Pipelines, including those that no file declares.
    pub pipelines: usize,
    /// Positions of partitions of sources, including those that are set aside.
    pub positions: usize,
    /// Dead letters.
    pub letters: u64,
    /// Versions of schemas that are not permanently deleted.
    pub schemas: usize,
}

impl Store {
    /// Copies everything but cached results into an empty store. This process owns both. What several units of a pipeline
    /// have becomes that of one: those that run the pipeline next divide it again. `copied` gets the number of dead letters
    /// that have been copied, and that of all.
    ///
    /// Takes memory for everything but dead letters.
    ///
    /// # Errors
    /// This store is empty, the other one is not, or one of the stores failed. After a failure, a table that was copied to is
    /// refused as a store until [`Store::abandon_copy`]; a file must be removed by the caller.
    pub async fn copy_into(&self, to: &Store, mut copied: impl FnMut(u64, u64)) -> Result<CopiedCounts, CopyError> {
        // Upgrades a store of an earlier version.
        self.write(Write::Trial(1)).await?;
        let mut contents = self.contents().await?;
        if contents.is_empty() {
            return Err(CopyError::Nothing);
        }
        if !to.contents().await?.is_empty() || matches!(to.write(Write::BeginCopy).await?, WriteResult::NotEmpty) {
            return Err(CopyError::NotEmpty);
        }
        let all = contents.queues.values().map(|queue| queue.count).sum();
        let mut letters = 0;
        for (pipeline, queue) in &mut contents.queues {
            (queue.count, queue.bytes) = (0, 0);
            self.copy_letters(to, pipeline, queue, |count| copied(letters + count, all)).await?;
            letters += queue.count;
        }
        let contents = contents.in_whole_units();
        let is_there = |deleted: &Option<_>| *deleted != Some(crate::schemas::Deletion::Gone);
        let counts = CopiedCounts {
            pipelines: contents.pipelines.len(),
            positions: contents.marks.len() + contents.detached.len(),
            letters,
            schemas: contents.versions.iter().filter(|version| is_there(&version.deleted)).count(),
        };
        to.write(Write::Contents(Box::new(contents))).await?;
        Ok(counts)
    }

    /// Removes what a copy into this store has written that has not ended.
    ///
    /// # Errors
    /// The store cannot be written: it is refused as a store until its tables are removed.
    pub async fn abandon_copy(&self) -> Result<(), StoreError> {
        self.write(Write::AbandonCopy).await.map(drop)
    }

    pub(super) async fn contents(&self) -> Result<Contents, StoreError> {
        match self.read(Read::Contents).await? {
            ReadResult::Contents(contents) => Ok(*contents),
            other => Err(contradiction(&other)),
        }
    }

    /// Copies the dead letters of a pipeline, the newest first, and counts them.
    async fn copy_letters(
        &self,
        to: &Store,
        pipeline: &Str,
        queue: &mut LetterCounter,
        mut copied: impl FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut below = queue.next;
        loop {
            let letters = self.page(pipeline, below).await?;
            let Some((last, _)) = letters.last() else { return Ok(()) };
            below = *last;
            queue.count += letters.len() as u64;
            queue.bytes += letters.iter().map(|(_, letter)| weight(letter.encoded_len())).sum::<u64>();
            to.write(Write::CopiedLetters { pipeline: pipeline.clone(), letters }).await?;
            copied(queue.count);
        }
    }

    /// Returns the newest dead letters with numbers below this one.
    pub(super) async fn page(&self, pipeline: &Str, below: u64) -> Result<NumberedLetters, StoreError> {
        let question = LetterQuery::Below { number: below, most: PAGE };
        match self.read(Read::Letters { pipeline: pipeline.clone(), question }).await? {
            ReadResult::Letters(LetterAnswer::Letters(letters)) => Ok(letters),
            other => Err(contradiction(&other)),
        }
    }
}
