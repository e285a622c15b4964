//! A notation for pipelines with one line per part, so that a test shows nothing but the pipeline:
//!
//! ```text
//! source in gen sdk.batch.size=10
//!   clean set key=a value=1
//! tag set key=b value=2 workers=2 if {{ eq (index .Metadata "a") "1" }}
//! destination out out
//! unmatched drop
//! dead-letters out
//! ```
//!
//! An indented processor belongs to the connector above it. Spans point into the text.

use anabranch_plugin::diagnostic::{FileId, Span, Spanned};
use anabranch_plugin::registry::Role;
use anabranch_plugin::settings::{Setting, Settings};
use anabranch_plugin::written::Written;
use anabranch_record::text::Str;

use anabranch_config::{ConnectorConfig, DeadLetterConfig, DesiredStatus, PipelineConfig, ProcessorConfig};

struct Words<'a> {
    text: &'a str,
    line: &'a str,
}

impl<'a> Words<'a> {
    fn span(&self, word: &str) -> Span {
        let start = (word.as_ptr() as usize - self.text.as_ptr() as usize) as u32;
        Span { file: FileId(0), start, end: start + word.len() as u32 }
    }

    fn spanned(&self, word: &str) -> Spanned<Str> {
        Spanned::new(word.into(), self.span(word))
    }

    fn next(&mut self) -> Option<&'a str> {
        let line = self.line.trim_start();
        let end = line.find(' ').unwrap_or(line.len());
        self.line = &line[end..];
        Some(&line[..end]).filter(|word| !word.is_empty())
    }

    /// Returns a value in which `$NAME` is replaced by `value-of-NAME`, as the loader replaces `${NAME}`.
    fn written(&self, text: &str) -> Written {
        Written::new(text.replace('$', "value-of-"), text, self.span(text))
    }

    /// Reads `name=value` pairs up to `if` or the end of the line; `workers` is not a setting.
    fn settings(&mut self, plugin: &str) -> (Settings, Spanned<u32>, Option<Written>) {
        let mut settings = Settings { entries: Vec::new(), span: self.span(plugin) };
        let mut workers = Spanned::new(1, Span::default());
        while let Some(word) = self.next() {
            if word == "if" {
                return (settings, workers, Some(self.written(self.line.trim())));
            }
            let (name, value) = word.split_once('=').unwrap();
            match name {
                "workers" => workers = Spanned::new(value.parse().unwrap(), self.span(value)),
                _ => settings.entries.push(Setting { name: self.spanned(name), value: self.written(value) }),
            }
        }
        (settings, workers, None)
    }
}

/// The pipeline that a text in this notation says.
///
/// # Panics
/// The text is not in this notation.
pub fn pipeline(text: &str) -> PipelineConfig {
    let mut connectors: Vec<ConnectorConfig> = Vec::new();
    let mut processors = Vec::new();
    let mut unmatched = None;
    let mut dead_letters = (Spanned::new(Str::from("out"), Span::default()), Settings::default());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = Words { text, line };
        let first = words.next().unwrap();
        let role = match first {
            "source" => Some(Role::Source),
            "destination" => Some(Role::Destination),
            "dead-letters" => {
                let plugin = words.next().unwrap();
                dead_letters = (words.spanned(plugin), words.settings(plugin).0);
                continue;
            }
            "unmatched" => {
                let word = words.next().unwrap();
                unmatched = Some(words.written(word));
                continue;
            }
            _ => None,
        };
        let id = if role.is_some() { words.next().unwrap() } else { first };
        let plugin = words.next().unwrap();
        let (settings, workers, condition) = words.settings(plugin);
        let (id, name, plugin, span) = (words.spanned(id), words.spanned(id), words.spanned(plugin), words.span(line));
        match role {
            Some(role) => connectors.push(ConnectorConfig {
                role: Spanned::new(role, words.span(first)),
                id,
                name,
                plugin,
                condition,
                settings,
                processors: Vec::new(),
                span,
            }),
            None => {
                let processor = ProcessorConfig { id, plugin, condition, settings, workers, span };
                match line.starts_with(' ') {
                    true => connectors.last_mut().unwrap().processors.push(processor),
                    false => processors.push(processor),
                }
            }
        }
    }
    PipelineConfig {
        id: Spanned::new("demo".into(), Span::default()),
        name: Spanned::new("demo".into(), Span::default()),
        description: Str::default(),
        status: DesiredStatus::Running,
        connectors,
        processors,
        unmatched,
        placement: None,
        dead_letter_queue: DeadLetterConfig {
            plugin: dead_letters.0,
            settings: dead_letters.1,
            window_size: Spanned::new(1, Span::default()),
            window_nack_threshold: Spanned::new(0, Span::default()),
            span: Span::default(),
        },
        span: Span::default(),
    }
}
