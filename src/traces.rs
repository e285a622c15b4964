//! Traces of records, on their way to a collector.
//!
//! Pipelines give their spans to a queue that is bounded: what it has no room for is dropped and counted, so that a
//! collector that is slow or away holds up no record. One task takes spans from the queue and posts them, some at a time.

#[cfg(feature = "traces")]
mod collector;
#[cfg(not(feature = "traces"))]
#[path = "traces/left_out.rs"]
mod collector;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::trace::{Share, Span, SpanSink, Tracing};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::collector::Collector;
use crate::settings::TraceSettings;

/// Spans that wait to be sent.
const QUEUE: usize = 16_384;
/// Most spans of a request.
const BATCH: usize = 512;
/// How long a span waits for others to be sent with it.
const LINGER: Duration = Duration::from_millis(500);
/// Waits between the attempts of a request.
const WAITS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// How often it is said that spans cannot be sent.
const SAID: Duration = Duration::from_secs(60);
/// How long the end waits for what has not been sent.
pub const FLUSH: Duration = Duration::from_secs(3);

/// What became of spans so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector has them.
    pub sent: u64,
    /// There was no room, or the collector did not take them.
    pub dropped: u64,
}

/// Why spans were not taken.
#[derive(Debug, PartialEq)]
struct Refusal {
    /// In words; nothing of what headers hold.
    what: String,
    /// How many; `None` = all of the request.
    spans: Option<u64>,
    /// Whether the same request may be taken later.
    is_passing: bool,
    /// How long the collector wants to be left alone.
    wait: Option<Duration>,
}

/// The counters, and the way in.
struct Queue {
    spans: mpsc::Sender<Span>,
    /// Spans that found no room.
    refused: AtomicU64,
    /// Spans that found room: each is sent or lost in the end.
    taken: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
}

impl SpanSink for Queue {
    fn take(&self, span: Span) {
        let counter = if self.spans.try_send(span).is_ok() { &self.taken } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends the spans of all pipelines.
pub struct Exporter {
    queue: Arc<Queue>,
    share: Share,
    stopping: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter {
    /// Begins to send, on this runtime. Connects to nothing before there is a span.
    ///
    /// # Errors
    /// No requests can be made at all.
    pub fn start(settings: &TraceSettings, runtime: &Handle) -> Result<Arc<Exporter>, String> {
        let collector = Collector::new(settings)?;
        let (spans, to_send) = mpsc::channel(QUEUE);
        let queue = Arc::new(Queue {
            spans,
            refused: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let (stopping, is_stopping) = watch::channel(false);
        let sending =
            Sending { collector, queue: queue.clone(), stopping: is_stopping, ending: false, said: None, unsaid: 0 };
        let task = runtime.spawn(sending.run(to_send));
        tracing::info!(sample = settings.share.as_f64(), endpoint = %settings.endpoint, "records are traced");
        Ok(Arc::new(Exporter { queue, share: settings.share, stopping, task: Mutex::new(Some(task)) }))
    }

    /// How runs are traced.
    pub fn tracing(&self) -> Tracing {
        Tracing { sink: self.queue.clone(), share: self.share, past: None }
    }

    /// What became of spans so far.
    pub fn counts(&self) -> SpanCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpanCounts { sent: count(&self.queue.sent), dropped: count(&self.queue.refused) + count(&self.queue.lost) }
    }

    /// Sends what waits, for so long at most; later spans are dropped.
    pub async fn close(&self, within: Duration) {
        self.stopping.send_replace(true);
        let Some(mut task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if timeout(within, &mut task).await.is_err() {
            task.abort();
            let _ = task.await;
            let queue = &self.queue;
            let settled = queue.sent.load(Ordering::Relaxed) + queue.lost.load(Ordering::Relaxed);
            queue.lost.fetch_add(queue.taken.load(Ordering::Relaxed).saturating_sub(settled), Ordering::Relaxed);
        }
        let SpanCounts { sent, dropped } = self.counts();
        if dropped > 0 {
            tracing::warn!(sent, dropped, "not all spans of traces were sent");
        }
    }
}

/// The task that sends.
struct Sending {
    collector: Collector,
    queue: Arc<Queue>,
    stopping: watch::Receiver<bool>,
    /// No more spans come, and nothing is waited for.
    ending: bool,
    /// When it was said last that spans cannot be sent.
    said: Option<Instant>,
    /// Spans that were lost since.
    unsaid: u64,
}

impl Sending {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.gather(&mut spans, &mut batch).await {
            self.send(&batch).await;
            batch.clear();
        }
    }

    /// Waits for a span, then for others to go with it; says whether there is any.
    async fn gather(&mut self, spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) -> bool {
        let mut due: Option<Instant> = None;
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if self.ending {
                spans.close();
                if spans.recv_many(batch, room).await == 0 {
                    break;
                }
                continue;
            }
            tokio::select! {
                biased;
                () = said(&mut self.stopping) => self.ending = true,
                count = spans.recv_many(batch, room) => if count == 0 { break },
                () = until(due) => break,
            }
            due = due.or_else(|| Some(Instant::now() + LINGER));
        }
        !batch.is_empty()
    }

    /// Posts spans, more than once if need be; what is not taken then is lost.
    async fn send(&mut self, batch: &[Span]) {
        let body = self.collector.encode(batch);
        let mut waits = WAITS.into_iter();
        let refusal = loop {
            let refusal = match self.collector.post(body.clone()).await {
                Ok(refused) => break refused,
                Err(refusal) => refusal,
            };
            let Some(wait) = waits.next().filter(|_| refusal.is_passing && !self.ending) else { break Some(refusal) };
            tokio::select! {
                biased;
                // One more attempt.
                () = said(&mut self.stopping) => self.ending = true,
                () = sleep(refusal.wait.unwrap_or(wait)) => {}
            }
        };
        let spans = batch.len() as u64;
        let lost = refusal.as_ref().map_or(0, |refusal| refusal.spans.unwrap_or(spans).min(spans));
        self.queue.sent.fetch_add(spans - lost, Ordering::Relaxed);
        self.queue.lost.fetch_add(lost, Ordering::Relaxed);
        if let Some(refusal) = refusal {
            self.complain(&refusal, lost);
        }
    }

    /// Says now and then that spans are lost, and why.
    fn complain(&mut self, refusal: &Refusal, lost: u64) {
        self.unsaid += lost;
        if self.said.is_none_or(|said| said.elapsed() >= SAID) {
            self.said = Some(Instant::now());
            let spans = std::mem::take(&mut self.unsaid);
            tracing::warn!(spans, error = %refusal.what, "spans of traces could not be sent, and are lost");
        }
    }
}

/// Waits for the word to stop; nobody being left to say it is the end as well.
async fn said(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
