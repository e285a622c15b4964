//! The pipeline that a thread currently works for. Log lines without a pipeline are about it.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use anabranch_record::text::Str;

thread_local! {
    static PIPELINE: RefCell<Option<Str>> = const { RefCell::new(None) };
}

/// Returns the pipeline for which this thread currently runs a task of the executor, or an operator.
pub fn pipeline() -> Option<Str> {
    PIPELINE.with(|pipeline| pipeline.try_borrow().ok()?.clone())
}

/// Sets the pipeline that this thread works for.
pub fn work_for(pipeline: &Str) {
    PIPELINE.set(Some(pipeline.clone()));
}

/// A task of a pipeline. Costs two pointer swaps per poll.
pub struct PipelineTask<F> {
    pipeline: Option<Str>,
    task: Pin<Box<F>>,
}

impl<F> PipelineTask<F> {
    /// Makes a future a task of a pipeline.
    pub fn new(pipeline: &Str, task: F) -> Self {
        PipelineTask { pipeline: Some(pipeline.clone()), task: Box::pin(task) }
    }
}

impl<F: Future> Future for PipelineTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        /// Restores the previous pipeline, also if the task panics.
        struct Turn<'a>(&'a mut Option<Str>);

        impl Drop for Turn<'_> {
            fn drop(&mut self) {
                PIPELINE.with(|pipeline| std::mem::swap(&mut *pipeline.borrow_mut(), self.0));
            }
        }

        let PipelineTask { pipeline, task } = &mut *self;
        PIPELINE.with(|current| std::mem::swap(&mut *current.borrow_mut(), pipeline));
        let _turn = Turn(pipeline);
        task.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_know_whose_they_are_and_nobody_else_does() {
        assert_eq!(pipeline(), None);
        let inner = PipelineTask::new(&"inner".into(), async {
            tokio::task::yield_now().await;
            pipeline()
        });
        let outer = PipelineTask::new(&"outer".into(), async { (inner.await, pipeline()) });
        assert_eq!(outer.await, (Some("inner".into()), Some("outer".into())));
        assert_eq!(pipeline(), None);
    }
}
