//! Export of traces to a collector.
//!
//! Pipelines put their spans into a bounded queue. Spans that do not fit are dropped and counted, so that a slow or
//! unreachable collector does not delay records. One task takes spans from the queue and posts them in batches.

#[cfg(feature = "traces")]
mod collector;
#[cfg(not(feature = "traces"))]
#[path = "traces/left_out.rs"]
mod collector;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch_plugin::trace::{Share, Span, SpanSink, Tracing};
use anabranch_settings::TraceSettings;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::collector::Collector;

/// Maximum number of spans that wait to be sent.
const QUEUE: usize = 16_384;
/// Maximum number of spans per request.
const BATCH: usize = 512;
/// How long a span waits for others to be sent with it.
const LINGER: Duration = Duration::from_millis(500);
/// Waits between the attempts of a request.
const WAITS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// Minimum time between two log lines about spans that cannot be sent.
const SAID: Duration = Duration::from_secs(60);
/// How long the end of the service waits until pending spans are sent.
pub const FLUSH: Duration = Duration::from_secs(3);

/// Counts of spans so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Spans that the collector accepted.
    pub sent: u64,
    /// Spans that did not fit into the queue or that the collector did not accept.
    pub dropped: u64,
}

/// Reason why spans were not accepted.
#[derive(Debug, PartialEq)]
struct SpansRejected {
    /// Description, without values of headers.
    what: String,
    /// Number of rejected spans; `None` = all of the request.
    spans: Option<u64>,
    /// True if the same request may succeed later.
    is_passing: bool,
    /// Delay that the collector requests.
    wait: Option<Duration>,
}

/// The counters, and the sender of the queue.
struct SpanQueue {
    spans: mpsc::Sender<Span>,
    /// Spans that did not fit into the queue.
    refused: AtomicU64,
    /// Spans that entered the queue: each is either sent or lost.
    taken: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
}

impl SpanSink for SpanQueue {
    fn take(&self, span: Span) {
        let counter = if self.spans.try_send(span).is_ok() { &self.taken } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Exports the spans of all pipelines.
pub struct Exporter {
    queue: Arc<SpanQueue>,
    share: Share,
    stopping: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Exporter {
    /// Starts the export on this runtime. Does not connect before the first span.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn start(settings: &TraceSettings, runtime: &Handle) -> Result<Arc<Exporter>, String> {
        let collector = Collector::new(settings)?;
        let (spans, to_send) = mpsc::channel(QUEUE);
        let queue = Arc::new(SpanQueue {
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

    /// Returns the tracing options of runs.
    pub fn tracing(&self) -> Tracing {
        Tracing { sink: self.queue.clone(), share: self.share, past: None }
    }

    /// Returns the counts of spans so far.
    pub fn counts(&self) -> SpanCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpanCounts { sent: count(&self.queue.sent), dropped: count(&self.queue.refused) + count(&self.queue.lost) }
    }

    /// Sends the pending spans for at most `within`. Later spans are dropped.
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
            tracing::warn!(sent, dropped, "some trace spans were not sent");
        }
    }
}

/// The task that sends spans.
struct Sending {
    collector: Collector,
    queue: Arc<SpanQueue>,
    stopping: watch::Receiver<bool>,
    /// True if the queue is closed and the task sends without waits.
    ending: bool,
    /// Time of the last log line about spans that cannot be sent.
    said: Option<Instant>,
    /// Lost spans since that log line.
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

    /// Waits for a span, then for others to be sent with it. Returns `true` if there is any.
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

    /// Posts spans, with retries. Spans that are not accepted then are lost.
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

    /// Logs that spans are lost, and why, at most once a minute.
    fn complain(&mut self, refusal: &SpansRejected, lost: u64) {
        self.unsaid += lost;
        if self.said.is_none_or(|said| said.elapsed() >= SAID) {
            self.said = Some(Instant::now());
            let spans = std::mem::take(&mut self.unsaid);
            tracing::warn!(spans, error = %refusal.what, "trace spans could not be sent and are lost");
        }
    }
}

/// Waits for the signal to stop. A dropped sender counts as a signal.
async fn said(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
