//! `status: stopped` in the text of a pipeline file.

use anabranch_config::yaml::{Entry, Node, Value, parse};
use anabranch_plugin::diagnostic::{Diagnostics, FileId, Span};

/// Returns the edits of the file that stop the pipelines whose items begin at these bytes: ranges, and the texts that
/// replace them. A pipeline that cannot be edited has none.
pub(super) fn edits(file: FileId, text: &str, pipelines: &[Span]) -> Vec<(usize, usize, String)> {
    let mut edits = Vec::new();
    for document in parse(file, text, &mut Diagnostics::new()) {
        let Some(Value::Map(root)) = document.root.as_ref().map(|root| &root.value) else { continue };
        let Some(list) = root.entries.iter().find(|entry| *entry.key == *"pipelines") else { continue };
        let is_named = |start: u32| pipelines.iter().any(|span| span.start == start);
        match &list.value.value {
            Value::List(items) => {
                edits.extend(items.iter().filter(|item| is_named(item.span.start)).filter_map(|item| stop(text, item)));
            }
            // Before version 2, pipelines are a map by id.
            Value::Map(map) => {
                let named = map.entries.iter().filter(|entry| is_named(entry.key_span.start));
                edits.extend(named.filter_map(|entry| stop(text, &entry.value)));
            }
            _ => {}
        }
    }
    edits
}

fn stop(text: &str, pipeline: &Node) -> Option<(usize, usize, String)> {
    let Value::Map(map) = &pipeline.value else { return None };
    // Merged entries stand elsewhere; one that stands here comes before them.
    let is_own = |span: Span| span.start >= pipeline.span.start && span.end <= pipeline.span.end;
    let own: Vec<&Entry> = map.entries.iter().filter(|entry| is_own(entry.key_span)).collect();
    if let Some(status) = own.iter().find(|entry| *entry.key == *"status") {
        return Some(replaced(text, status, is_own(status.value.span)));
    }
    let first = own.iter().map(|entry| entry.key_span.start as usize).min()?;
    let is_flow = text.get(pipeline.span.start as usize..)?.starts_with('{');
    let line = text[..first].rfind('\n').map_or(0, |at| at + 1);
    let inserted = match is_flow {
        true => "status: stopped, ".to_owned(),
        false => format!("status: stopped\n{}", " ".repeat(text[line..first].chars().count())),
    };
    Some((first, first, inserted))
}

/// Returns the edit of a status that is there, which may be empty or an alias.
fn replaced(text: &str, status: &Entry, is_here: bool) -> (usize, usize, String) {
    let span = status.value.span;
    if is_here && span.end > span.start && span.start > status.key_span.start {
        return (span.start as usize, span.end as usize, "stopped".to_owned());
    }
    let key = status.key_span.end as usize;
    let colon = text[key..].find(':').map_or(key, |at| key + at + 1);
    let end = text[colon..].find([',', '}', '\n', '#']).map_or(text.len(), |at| colon + at);
    let end = colon + text[colon..end].trim_end().len();
    (colon, end, " stopped".to_owned())
}

#[cfg(test)]
mod tests {
    use anabranch_plugin::diagnostic::Files;

    use super::*;

    /// Stops all pipelines of a text.
    fn stopped(text: &str) -> String {
        let mut files = Files::new();
        let file = files.add("p.yaml", text);
        let all: Vec<Span> = (0..text.len() as u32).map(|start| Span { file, start, end: start }).collect();
        let mut edits = edits(file, text, &all);
        edits.sort();
        let mut out = text.to_owned();
        for (start, end, becomes) in edits.into_iter().rev() {
            out.replace_range(start..end, &becomes);
        }
        out
    }

    #[test]
    fn every_form_of_a_pipeline_can_be_stopped() {
        for (before, after) in [
            ("pipelines:\n  - id: a\n    x: 1\n", "pipelines:\n  - status: stopped\n    id: a\n    x: 1\n"),
            ("pipelines:\n- id: a\n  status: running # b\n", "pipelines:\n- id: a\n  status: stopped # b\n"),
            ("pipelines:\n- id: a\n  status: \"running\"\n", "pipelines:\n- id: a\n  status: stopped\n"),
            ("pipelines:\n- id: a\n  status:\n  x: 1\n", "pipelines:\n- id: a\n  status: stopped\n  x: 1\n"),
            ("pipelines: [{id: a}]", "pipelines: [{status: stopped, id: a}]"),
            ("{\"pipelines\": [{\"id\": \"a\"}]}", "{\"pipelines\": [{status: stopped, \"id\": \"a\"}]}"),
            ("pipelines:\n  a:\n    x: 1\n", "pipelines:\n  a:\n    status: stopped\n    x: 1\n"),
            (
                "s: &s running\npipelines:\n- status: *s\n  id: a\n",
                "s: &s running\npipelines:\n- status: stopped\n  id: a\n",
            ),
        ] {
            assert_eq!(stopped(before), after);
        }
    }
}
