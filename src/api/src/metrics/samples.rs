//! Metrics and their values at one moment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anabranch_plugin::histogram::Distribution;
use anabranch_record::text::Str;
use metrics::{Key, KeyName, Level, Metadata, Recorder, with_local_recorder};
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_process::Collector;

/// A metric.
pub(super) struct Metric {
    pub(super) name: &'static str,
    /// Description: the counted or measured quantity, and its unit.
    pub(super) help: &'static str,
    pub(super) labels: &'static [Label],
    kind: MetricKind,
}

/// A label of a metric.
pub(super) struct Label {
    pub(super) name: &'static str,
    /// Meaning of its value.
    pub(super) meaning: &'static str,
}

impl Label {
    pub(super) const fn new(name: &'static str, meaning: &'static str) -> Self {
        Label { name, meaning }
    }

    /// Returns its row in the documentation.
    #[cfg(test)]
    pub(super) fn row(&self) -> String {
        format!("| `{}` | {} |", self.name, self.meaning)
    }
}

impl Metric {
    /// Returns the help text with the meaning of the labels.
    pub(super) fn full_help(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|it| format!("{} ({})", it.name, it.meaning)).collect();
        match labels.len() {
            0 => self.help.to_owned(),
            1 => format!("{} Label: {}.", self.help, labels[0]),
            _ => format!("{} Labels: {}.", self.help, labels.join(", ")),
        }
    }

    /// Returns its row in the documentation.
    #[cfg(test)]
    pub(super) fn row(&self) -> String {
        let kind = match self.kind {
            MetricKind::Counter | MetricKind::Seconds => "counter",
            MetricKind::Sum | MetricKind::Oldest | MetricKind::Least => "gauge",
            MetricKind::Times => "histogram",
        };
        let labels: Vec<String> = self.labels.iter().map(|label| format!("`{}`", label.name)).collect();
        let labels = if labels.is_empty() { String::new() } else { format!(" {}", labels.join(", ")) };
        format!("| `{}` | {kind} |{labels} | {} |", self.name, self.help)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricKind {
    /// Only increases.
    Counter,
    /// Only increases, in seconds.
    Seconds,
    /// Goes up and down; several values are combined as their sum.
    Sum,
    /// Goes up and down; several values are combined as their maximum.
    Oldest,
    /// Goes up and down; several values are combined as their minimum.
    Least,
    /// Histogram of durations.
    Times,
}

pub(super) const fn counter(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, help, labels, kind: MetricKind::Counter }
}

pub(super) const fn seconds(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, help, labels, kind: MetricKind::Seconds }
}

pub(super) const fn sum(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, help, labels, kind: MetricKind::Sum }
}

pub(super) const fn oldest(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, help, labels, kind: MetricKind::Oldest }
}

pub(super) const fn least(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, help, labels, kind: MetricKind::Least }
}

pub(super) const fn times(name: &'static str, labels: &'static [Label], help: &'static str) -> Metric {
    Metric { name, help, labels, kind: MetricKind::Times }
}

/// The labels of a value: the pipeline, if any, and further labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    pipeline: Option<Str>,
    parts: Vec<(&'static str, Str)>,
}

impl Labels {
    pub(super) fn of(name: &'static str, value: Str) -> Self {
        Labels::default().with(name, value)
    }

    pub(super) fn pipeline(id: &Str) -> Self {
        Labels { pipeline: Some(id.clone()), parts: Vec::new() }
    }

    pub(super) fn with(mut self, name: &'static str, value: Str) -> Self {
        self.parts.push((name, value));
        self
    }

    fn listed(&self) -> Vec<metrics::Label> {
        let pipeline = self.pipeline.as_ref().map(|id| metrics::Label::new("pipeline", id.to_string()));
        let parts = self.parts.iter().map(|(name, value)| metrics::Label::new(*name, value.to_string()));
        pipeline.into_iter().chain(parts).collect()
    }
}

/// Values by metric and labels.
#[derive(Default)]
pub(super) struct Samples {
    values: BTreeMap<(&'static str, Labels), f64>,
    times: BTreeMap<(&'static str, Labels), Distribution>,
}

const METADATA: Metadata<'static> = Metadata::new("anabranch", Level::INFO, None);
/// Exposed as a gauge, because the counters of the exporter are whole numbers.
const PROCESS_SECONDS: &str = "process_cpu_seconds_total";

impl Samples {
    /// Adds a value; combines it with an existing value for the same labels.
    pub(super) fn add(&mut self, metric: &Metric, labels: Labels, value: f64) {
        let combined = |all: f64| match metric.kind {
            MetricKind::Oldest => all.max(value),
            MetricKind::Least => all.min(value),
            MetricKind::Counter | MetricKind::Seconds | MetricKind::Sum | MetricKind::Times => all + value,
        };
        self.values.entry((metric.name, labels)).and_modify(|all| *all = combined(*all)).or_insert(value);
    }

    /// Adds durations; combines them with existing ones for the same labels.
    pub(super) fn add_times(&mut self, metric: &Metric, labels: Labels, times: &Distribution) {
        self.times.entry((metric.name, labels)).or_default().join(times);
    }

    /// Returns the text for Prometheus, with the metrics of the process.
    pub(super) fn exposed(&self, metrics: &[&Metric]) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in metrics {
            let (name, help) = (KeyName::from_const_str(metric.name), metric.full_help().into());
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, None, help),
                MetricKind::Seconds | MetricKind::Sum | MetricKind::Oldest | MetricKind::Least => {
                    recorder.describe_gauge(name, None, help);
                }
                MetricKind::Times => {}
            }
        }
        let kinds: BTreeMap<&str, MetricKind> = metrics.iter().map(|metric| (metric.name, metric.kind)).collect();
        for ((name, labels), value) in &self.values {
            let key = Key::from_parts(*name, labels.listed());
            match kinds.get(name) {
                Some(MetricKind::Counter) => recorder.register_counter(&key, &METADATA).absolute(*value as u64),
                _ => recorder.register_gauge(&key, &METADATA).set(*value),
            }
        }
        with_local_recorder(&recorder, || {
            let process = Collector::default();
            process.describe();
            process.collect();
        });
        let mut text = recorder.handle().render();
        let seconds = metrics.iter().filter(|metric| metric.kind == MetricKind::Seconds).map(|metric| metric.name);
        for name in seconds.chain([PROCESS_SECONDS]) {
            text = text.replace(&format!("# TYPE {name} gauge"), &format!("# TYPE {name} counter"));
        }
        for metric in metrics.iter().filter(|metric| metric.kind == MetricKind::Times) {
            self.expose_times(metric, &mut text);
        }
        text
    }

    /// Writes a histogram, because the exporter cannot build one from existing counts.
    fn expose_times(&self, metric: &Metric, text: &mut String) {
        let name = metric.name;
        let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} histogram", metric.full_help());
        for ((_, labels), times) in self.times.iter().filter(|((of, _), _)| *of == name) {
            let labels = labels.listed().iter().fold(String::new(), |mut listed, label| {
                let value = label.value().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                let _ = write!(listed, "{}{}=\"{value}\"", if listed.is_empty() { "" } else { "," }, label.key());
                listed
            });
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, count) in times.cumulative() {
                let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
                let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
            }
            let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            let _ = writeln!(text, "{name}_sum{braced} {}", times.sum.as_secs_f64());
            let _ = writeln!(text, "{name}_count{braced} {}", times.count());
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_the_oldest_of_several_are_told_as_what_they_are() {
        const ROWS: Metric = counter("rows_total", &[], "Rows.");
        const TIME: Metric = seconds("time_seconds_total", &[], "Time.");
        const AGE: Metric = oldest("age_seconds", &[], "Age.");
        let mut samples = Samples::default();
        let about = || Labels::pipeline(&"a \"b\"".into()).with("node", "n".into());
        for value in [1.5, 0.5] {
            samples.add(&ROWS, about(), value * 2.0);
            samples.add(&TIME, about(), value);
            samples.add(&AGE, about(), value);
        }
        const LATENCY: Metric = times("latency_seconds", &[], "Latency.");
        let histogram = anabranch_plugin::histogram::Histogram::default();
        histogram.add(std::time::Duration::from_millis(3), 4);
        samples.add_times(&LATENCY, about(), &histogram.distribution());
        samples.add_times(&LATENCY, about(), &histogram.distribution());
        let text = samples.exposed(&[&ROWS, &TIME, &AGE, &LATENCY]);
        for expected in [
            "# HELP rows_total Rows.\n# TYPE rows_total counter\nrows_total{pipeline=\"a \\\"b\\\"\",node=\"n\"} 4\n",
            "# TYPE time_seconds_total counter\ntime_seconds_total{pipeline=\"a \\\"b\\\"\",node=\"n\"} 2\n",
            "# HELP latency_seconds Latency.\n# TYPE latency_seconds histogram\n",
            "latency_seconds_bucket{pipeline=\"a \\\"b\\\"\",node=\"n\",le=\"0.002\"} 0\n",
            "latency_seconds_bucket{pipeline=\"a \\\"b\\\"\",node=\"n\",le=\"0.005\"} 8\n",
            "latency_seconds_bucket{pipeline=\"a \\\"b\\\"\",node=\"n\",le=\"+Inf\"} 8\n",
            "latency_seconds_sum{pipeline=\"a \\\"b\\\"\",node=\"n\"} 0.024\n",
            "latency_seconds_count{pipeline=\"a \\\"b\\\"\",node=\"n\"} 8\n",
            "# TYPE age_seconds gauge\nage_seconds{pipeline=\"a \\\"b\\\"\",node=\"n\"} 1.5\n",
        ] {
            assert!(text.contains(expected), "{expected}\nis not in\n{text}");
        }
    }
}
