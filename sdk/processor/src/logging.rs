//! Sends log lines to the host: one JSON object per line on standard output.

use std::io::Write as _;

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Metadata, Record};

const LEVEL: &str = "CONDUIT_LOG_LEVEL";

/// Installs a logger that sends the lines of the crate `log` to the host, from the host's level on.
pub(crate) fn install() {
    static LOGGER: Logger = Logger;
    let wanted = std::env::var(LEVEL).unwrap_or_default();
    let level = level(&wanted);
    log::set_max_level(level.unwrap_or(LevelFilter::Debug));
    // Fails if the processor has set its own logger.
    let _ = log::set_logger(&LOGGER);
    if level.is_none() && !wanted.is_empty() {
        log::warn!("unknown log level {wanted:?}: logging starts at debug");
    }
}

fn level(name: &str) -> Option<LevelFilter> {
    Some(match name {
        "trace" => LevelFilter::Trace,
        "debug" => LevelFilter::Debug,
        "info" => LevelFilter::Info,
        "warn" => LevelFilter::Warn,
        "error" => LevelFilter::Error,
        // More severe than any logged level.
        "fatal" | "panic" | "disabled" => LevelFilter::Off,
        _ => return None,
    })
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // If writing fails, there is no other place to report it.
            let _ = std::io::stdout().write_all(&line(record));
        }
    }

    fn flush(&self) {
        let _ = std::io::stdout().flush();
    }
}

fn line(record: &Record<'_>) -> Vec<u8> {
    let level = match record.level() {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    let mut fields = Fields(serde_json::Map::new());
    let _ = record.key_values().visit(&mut fields);
    fields.0.insert("level".to_owned(), level.into());
    fields.0.insert("message".to_owned(), record.args().to_string().into());
    let mut line = serde_json::Value::Object(fields.0).to_string().into_bytes();
    line.push(b'\n');
    line
}

struct Fields(serde_json::Map<String, serde_json::Value>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let json = value
            .to_bool()
            .map(Into::into)
            .or_else(|| value.to_i64().map(Into::into))
            .or_else(|| value.to_f64().map(Into::into))
            .unwrap_or_else(|| serde_json::Value::String(value.to_string()));
        self.0.insert(key.as_str().to_owned(), json);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_with_the_fields_of_the_record() {
        let fields = [("count", Value::from(3_i64)), ("name", Value::from("a\"b\n"))];
        let record = Record::builder().level(Level::Warn).args(format_args!("two\nlines")).key_values(&fields).build();
        let text = String::from_utf8(line(&record)).unwrap();
        assert_eq!(text, "{\"count\":3,\"level\":\"warn\",\"message\":\"two\\nlines\",\"name\":\"a\\\"b\\n\"}\n");
    }

    #[test]
    fn every_level_of_the_protocol_is_known() {
        for name in ["trace", "debug", "info", "warn", "error", "fatal", "panic", "disabled"] {
            assert!(level(name).is_some(), "{name}");
        }
        assert_eq!(level("verbose"), None);
    }
}
