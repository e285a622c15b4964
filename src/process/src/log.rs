//! The service log: lines of the service and of the `log` destination in one stream on standard output, and the status
//! line of a terminal.

mod line;
mod output;
mod repeated;

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anabranch_plugin::current;
use anabranch_plugin::host::{LogLevel, LogLine, LogSink};
use anabranch_plugin::secret::mask;
use anabranch_record::text::Str;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

pub use output::Output;
pub use repeated::EVERY as COUNTED_EVERY;

use line::{Fields, Style};
use repeated::Repeated;

/// Prefix of the targets that are logged: lines of this product, not those of its libraries.
const TARGETS: &str = "anabranch";

/// Level and format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Lines below this level are left out.
    pub level: LogLevel,
    /// Format of the lines.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable text.
    Cli,
    /// One JSON object per line.
    Json,
}

/// How long the end of a command waits for a reader that does not receive the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The service log.
pub struct Log {
    settings: LogSettings,
    style: Style,
    output: Arc<Output>,
    masks: RwLock<Vec<Str>>,
    repeated: Repeated,
}

impl Log {
    /// Creates a log that writes to `output`.
    pub fn new(settings: LogSettings, output: Arc<Output>) -> Arc<Log> {
        let style = Style { format: settings.format, color: output.is_colored(), terminal: output.is_terminal() };
        Arc::new(Log { settings, style, output, masks: RwLock::default(), repeated: Repeated::default() })
    }

    /// Makes this log the receiver of all `tracing` events of the process. Only the first call has an effect. Keep the
    /// guard until the command ends: dropping it waits for the last lines.
    #[must_use]
    pub fn install(self: &Arc<Self>) -> Installed {
        let subscriber = tracing_subscriber::registry().with(Receiver(self.clone()));
        let _ = tracing::subscriber::set_global_default(subscriber);
        Installed(self.output.clone())
    }

    /// Adds values that log lines of the service must not contain. Records are the user's data and are not masked.
    pub fn mask(&self, secrets: impl IntoIterator<Item = Str>) {
        let mut masks = self.masks.write().unwrap_or_else(PoisonError::into_inner);
        masks.extend(secrets);
        // The longest first: one secret may be the beginning of another.
        masks.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        masks.dedup();
    }

    /// Returns the output of the log.
    pub fn output(&self) -> &Arc<Output> {
        &self.output
    }

    /// Logs how many repeated warnings and errors were suppressed: those that are due, or all at the end. Call it every
    /// [`COUNTED_EVERY`].
    pub fn count_repeated(&self, all: bool) {
        for (count, about, latest) in self.repeated.counts(all, Instant::now()) {
            let lines = if count == 1 { "1 more line".to_owned() } else { format!("{count} more lines") };
            let message = format!("suppressed {lines} like this; the latest: {latest}");
            self.write_event(LogLevel::Warn, &Fields::of(message, about));
        }
        let lost = self.output.take_lost();
        if lost > 0 {
            let lines = if lost == 1 { "1 line".to_owned() } else { format!("{lost} lines") };
            let message = format!("lost {lines} of this log: the reader of the log was too slow");
            self.write_event(LogLevel::Warn, &Fields::of(message, Vec::new()));
        }
    }

    fn write_event(&self, level: LogLevel, fields: &Fields) {
        self.output.tell(line::event(level, fields, self.style));
    }

    /// Returns the text with the values of [`Log::mask`] masked.
    pub fn masked(&self, text: &str) -> String {
        let masks = self.masks.read().unwrap_or_else(PoisonError::into_inner);
        mask(text, &masks)
    }
}

impl LogSink for Log {
    fn enabled(&self, level: LogLevel) -> bool {
        level >= self.settings.level
    }

    fn write_records(&self, line: &LogLine<'_>, records: &mut dyn Iterator<Item = &[u8]>) -> io::Result<()> {
        if !self.enabled(line.level) {
            return Ok(());
        }
        let (head, tail) = line::around_record(line, self.style);
        self.output.write_lines(&mut |buffer| match records.next() {
            None => false,
            Some(record) => {
                buffer.extend_from_slice(head.as_bytes());
                buffer.extend_from_slice(&self.style.record(record.trim_ascii_end()));
                buffer.extend_from_slice(tail.as_bytes());
                true
            }
        })
    }
}

/// Guard of an installed log. Dropping it writes the pending lines, unless the reader does not receive them.
pub struct Installed(Arc<Output>);

impl Drop for Installed {
    fn drop(&mut self) {
        self.0.flush(LAST_LINES);
    }
}

struct Receiver(Arc<Log>);

impl<S: Subscriber> Layer<S> for Receiver {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with(TARGETS) && self.0.enabled(level(metadata))
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        use tracing::level_filters::LevelFilter;
        Some(match self.0.settings.level {
            LogLevel::Trace => LevelFilter::TRACE,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Error => LevelFilter::ERROR,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = level(event.metadata());
        let mut fields = Fields::default();
        event.record(&mut fields);
        fields.complete(current::pipeline);
        fields.each(|text| self.0.masked(&text));
        fields.shorten();
        if level >= LogLevel::Warn {
            let kind = (event.metadata().callsite(), fields.about(&repeated::TELLING));
            if !self.0.repeated.admits(kind, fields.message(), Instant::now()) {
                return;
            }
        }
        self.0.write_event(level, &fields);
    }
}

fn level(metadata: &Metadata<'_>) -> LogLevel {
    match *metadata.level() {
        tracing::Level::TRACE => LogLevel::Trace,
        tracing::Level::DEBUG => LogLevel::Debug,
        tracing::Level::INFO => LogLevel::Info,
        tracing::Level::WARN => LogLevel::Warn,
        tracing::Level::ERROR => LogLevel::Error,
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(format: LogFormat) -> (Arc<Log>, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let output = Output::to_file(file.reopen().unwrap()).unwrap();
        (Log::new(LogSettings { level: LogLevel::Info, format }, output), file)
    }

    fn write(log: &Log, level: LogLevel, message: &str) -> io::Result<()> {
        let line =
            LogLine { level, pipeline: "demo", component: "plugin", connector: "demo:out", plugin: "log", message };
        log.write_records(&line, &mut [&b"{\"a\":1}"[..], b"{\"a\":2}\n"].into_iter())
    }

    fn content(log: &Log, file: &tempfile::NamedTempFile) -> String {
        log.output().flush(Duration::from_secs(60));
        let text = std::fs::read_to_string(file.path()).unwrap();
        let stamp = regex::Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z").unwrap();
        stamp.replace_all(&text, "NOW").into_owned()
    }

    #[test]
    fn each_record_is_one_line_with_its_origin() {
        let (log, file) = log(LogFormat::Cli);
        write(&log, LogLevel::Info, "").unwrap();
        write(&log, LogLevel::Debug, "left out").unwrap();
        write(&log, LogLevel::Warn, "record delivery failed").unwrap();
        assert_eq!(
            content(&log, &file),
            "NOW INF pipeline=demo component=plugin connector_id=demo:out plugin_name=log record={\"a\":1}\n\
             NOW INF pipeline=demo component=plugin connector_id=demo:out plugin_name=log record={\"a\":2}\n\
             NOW WRN record delivery failed pipeline=demo component=plugin connector_id=demo:out plugin_name=log record={\"a\":1}\n\
             NOW WRN record delivery failed pipeline=demo component=plugin connector_id=demo:out plugin_name=log record={\"a\":2}\n"
        );
    }

    #[test]
    fn json_lines_are_json() {
        let (log, file) = log(LogFormat::Json);
        write(&log, LogLevel::Error, "a \"b\"").unwrap();
        for line in content(&log, &file).lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["level"], "error");
            assert_eq!(value["message"], "a \"b\"");
            assert_eq!(value["connector_id"], "demo:out");
            assert!(value["record"]["a"].is_number());
        }
    }

    #[test]
    fn events_are_masked_and_foreign_ones_left_out() {
        for format in [LogFormat::Cli, LogFormat::Json] {
            let (log, file) = log(format);
            log.mask(["hunter\"2".into(), "hunter\"22".into()]);
            let subscriber = tracing_subscriber::registry().with(Receiver(log.clone()));
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(pipeline = "demo", error = "no hunter\"22 here", "cannot \"use\" {}", "hunter\"2");
                tracing::info!(target: "hyper", "not ours");
                tracing::debug!("too fine");
            });
            let text = content(&log, &file);
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(!text.contains("hunter"), "{text}");
            match format {
                LogFormat::Cli => {
                    assert_eq!(text, "NOW INF cannot \"use\" *** pipeline=demo error=\"no *** here\"\n");
                }
                LogFormat::Json => {
                    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(value["message"], "cannot \"use\" ***");
                    assert_eq!(value["pipeline"], "demo");
                }
            }
        }
    }

    #[test]
    fn numbers_of_an_event_are_numbers_in_json() {
        let (log, file) = log(LogFormat::Json);
        log.mask(["4711".into()]);
        let subscriber = tracing_subscriber::registry().with(Receiver(log.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let share = Some(26.0);
            tracing::info!(
                read = 7_u64,
                left = -1,
                share,
                rate = f64::INFINITY,
                is = true,
                text = "7",
                code = 4711,
                "so"
            );
        });
        let value: serde_json::Value = serde_json::from_str(&content(&log, &file)).unwrap();
        let expected = serde_json::json!({
            "time": "NOW", "level": "info", "message": "so", "read": 7, "left": -1, "share": 26, "rate": "inf",
            "is": true, "text": "7", "code": "***",
        });
        assert_eq!(value, expected);
    }

    /// A line that was larger than the queue was lost, and the log blamed its reader.
    #[test]
    fn a_line_with_large_texts_is_shortened_and_not_lost() {
        for format in [LogFormat::Cli, LogFormat::Json] {
            let (log, file) = log(format);
            log.mask(["zzz-hunter22".into()]);
            let subscriber = tracing_subscriber::registry().with(Receiver(log.clone()));
            // Escaped, each of these characters has several bytes.
            let value = format!("{}zzz-hunter22", "\u{1}".repeat(6_000_000));
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(
                    pipeline = "demo",
                    error = value,
                    more = value,
                    code = "value_rejected",
                    "it fails: {value}"
                );
            });
            log.count_repeated(true);
            let text = content(&log, &file);
            assert_eq!(text.lines().count(), 1, "{} bytes", text.len());
            assert!(text.len() < 1 << 20 && text.contains("value_rejected"), "{} bytes", text.len());
            assert_eq!(text.matches(" more bytes)").count(), 3);
            assert!(!text.contains("hunter") && !text.contains("too slow"));
        }
    }

    #[test]
    fn what_is_said_again_and_again_is_counted() {
        let (log, file) = log(LogFormat::Cli);
        let subscriber = tracing_subscriber::registry().with(Receiver(log.clone()));
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..1000 {
                tracing::warn!(pipeline = "busy", "it fails again, {n}");
                tracing::info!("not limited");
            }
            for pipeline in ["one", "two"] {
                tracing::warn!(pipeline, "it fails");
            }
        });
        let text = content(&log, &file);
        assert_eq!(text.matches("it fails again").count(), 10, "{text}");
        assert_eq!((text.matches("it fails pipeline=").count(), text.matches("not limited").count()), (2, 1000));
        log.count_repeated(false);
        assert_eq!(content(&log, &file).len(), text.len(), "not yet");
        log.count_repeated(true);
        let text = content(&log, &file);
        let last = text.lines().last().unwrap();
        assert!(
            last.ends_with("suppressed 990 more lines like this; the latest: it fails again, 999 pipeline=busy"),
            "{last}"
        );
    }

    #[test]
    fn whoever_logs_does_not_wait_for_a_reader_and_what_is_lost_is_told() {
        let (reader, writer) = std::io::pipe().unwrap();
        let settings = LogSettings { level: LogLevel::Info, format: LogFormat::Cli };
        let log = Log::new(settings, Output::to_file(std::os::fd::OwnedFd::from(writer).into()).unwrap());
        let line = |n| log.write_event(LogLevel::Info, &Fields::of(format!("{n:01000}"), Vec::new()));
        (0..10_000).for_each(line);
        log.output().flush(Duration::from_millis(1));
        let reading = std::thread::spawn(|| std::io::read_to_string(reader).unwrap());
        log.output().flush(Duration::from_secs(60));
        log.count_repeated(true);
        drop(log);
        let text = reading.join().unwrap();
        let whole = text.lines().filter(|line| line.len() > 1000).count();
        let last = text.lines().last().unwrap();
        assert!(whole > 4000 && last.ends_with("the reader of the log was too slow"), "{whole}: {last}");
        assert!(last.contains(&format!("lost {} lines of this log", 10_000 - whole)), "{whole}: {last}");
    }

    #[test]
    fn a_full_disk_is_an_error_and_no_panic() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let settings = LogSettings { level: LogLevel::Info, format: LogFormat::Cli };
        let log = Log::new(settings, Output::to_file(full).unwrap());
        assert_eq!(write(&log, LogLevel::Info, "").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_is_noticed() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let settings = LogSettings { level: LogLevel::Info, format: LogFormat::Cli };
        let log = Log::new(settings, Output::to_file(std::os::fd::OwnedFd::from(writer).into()).unwrap());
        assert_eq!(write(&log, LogLevel::Info, "").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        log.output().reader_gone().await;
    }

    #[test]
    fn a_batch_larger_than_the_buffer_is_whole() {
        let (log, file) = log(LogFormat::Cli);
        let line = LogLine {
            level: LogLevel::Info,
            pipeline: "demo",
            component: "plugin",
            connector: "c",
            plugin: "log",
            message: "",
        };
        let record = format!("{{\"x\":\"{}\"}}", "y".repeat(1000)).into_bytes();
        log.write_records(&line, &mut std::iter::repeat_n(&record[..], 1000)).unwrap();
        let text = content(&log, &file);
        assert_eq!(text.lines().filter(|l| l.ends_with("\"}")).count(), 1000);
    }
}
