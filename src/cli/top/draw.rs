//! Draws the screen.

use anabranch_process::terminal::{age, short};
use anabranch_service::backlog;
use chrono::Utc;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};

use super::graph::{self, GraphLine, percent};
use super::rates;
use super::state::{Action, Mode, State};
use crate::cli::answers::{LivePipeline, SourceAnswer, StatusAnswer};

/// Columns of the list.
pub(super) const COLUMNS: [&str; 8] =
    ["PIPELINE", "STATUS", "READ/S", "OUT/S", "IN FLIGHT", "BACKLOG", "FAILED", "DEAD LETTERS"];
/// Columns of a graph.
pub(super) const GRAPH: [&str; 7] = ["GRAPH", "IN/S", "OUT/S", "FAILED", "HELD", "BUSY", "QUEUE"];
/// Width of a bar in characters.
pub(super) const BAR: usize = 10;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let [head, body, below, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(state)), head);
    match state.mode {
        Mode::Graph => graph(frame, state, body),
        Mode::List | Mode::Filter => list(frame, state, body),
    }
    frame.render_widget(Paragraph::new(complaint(state)), below);
    frame.render_widget(Paragraph::new(hints(state)), keys);
}

fn styled(state: &State, color: Color) -> Style {
    if state.color { Style::new().fg(color) } else { Style::new() }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn headline(state: &State) -> TextLine<'static> {
    let count = state.live.pipelines.len();
    let bad = |pipeline: &&LivePipeline| matches!(pipeline.status.word.as_str(), "degraded" | "invalid");
    let bad = state.live.pipelines.iter().filter(bad).count();
    let mut text = format!(
        "anabranch {} at {}, up {}, {count} pipeline{}",
        state.live.version,
        state.url,
        age(state.live.uptime_seconds),
        if count == 1 { "" } else { "s" }
    );
    if bad > 0 {
        text.push_str(&format!(", {bad} failed"));
    }
    TextLine::styled(text, bold())
}

fn status_style(state: &State, status: &StatusAnswer) -> Style {
    match status.word.as_str() {
        _ if status.stalled.is_some() => styled(state, Color::Yellow),
        "running" => styled(state, Color::Green),
        "degraded" | "invalid" => styled(state, Color::Red),
        "recovering" | "starting" => styled(state, Color::Yellow),
        _ => Style::new(),
    }
}

/// Returns a right-aligned cell.
fn right(text: String) -> Cell<'static> {
    Cell::new(TextLine::from(text).right_aligned())
}

fn header(columns: &[&'static str], numbers: std::ops::Range<usize>) -> Row<'static> {
    let cell = |(at, name): (usize, &&'static str)| {
        let line = TextLine::from(*name);
        Cell::new(if numbers.contains(&at) { line.right_aligned() } else { line })
    };
    Row::new(columns.iter().enumerate().map(cell).collect::<Vec<_>>()).style(bold())
}

/// Returns the columns of the list for a screen of this width: index into [`COLUMNS`], header and width. On a narrow
/// screen, columns are left out so that names and statuses remain readable.
fn columns(width: u16) -> Vec<(usize, &'static str, Constraint)> {
    let widths = [8, 8, 14, 18, 8, 12];
    let narrow = [(2, "READ/S", 7), (3, "OUT/S", 7), (5, "BACKLOG", 13), (6, "FAILED", 7), (7, "DEAD", 6)];
    let numbers: Vec<(usize, &'static str, u16)> = match width {
        110.. => (2..).zip(widths).map(|(at, width)| (at, COLUMNS[at], width)).collect(),
        70.. => narrow.into(),
        _ => narrow.into_iter().filter(|(at, ..)| !matches!(at, 3 | 5)).collect(),
    };
    let texts = [(0, COLUMNS[0], Constraint::Fill(3)), (1, COLUMNS[1], Constraint::Fill(2))];
    texts
        .into_iter()
        .chain(numbers.into_iter().map(|(at, name, width)| (at, name, Constraint::Length(width))))
        .collect()
}

/// Shortens a backlog to the available width: narrow screens omit the age.
fn of_width(backlog: String, width: u16) -> String {
    match backlog.split_once(" / ") {
        Some((amount, _)) if width < 110 => amount.to_owned(),
        _ => backlog,
    }
}

fn list(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let columns = columns(area.width);
    let row = |pipeline: &&LivePipeline| {
        let (read, delivered) = state.rates.of(&pipeline.id);
        let failed = right(pipeline.failed.to_string());
        let failed = if pipeline.failed > 0 { failed.style(styled(state, Color::Red)) } else { failed };
        let cells = [
            Cell::new(pipeline.id.clone()),
            Cell::new(pipeline.status.sentence()).style(status_style(state, &pipeline.status)),
            right(short(read)),
            right(short(delivered)),
            right(rates::in_flight(pipeline)),
            right(of_width(backlog::shown(pipeline.backlog.as_ref()), area.width)),
            failed,
            right(pipeline.dead_lettered.to_string()),
        ];
        let shown = |at: usize| columns.iter().any(|(column, ..)| *column == at);
        Row::new(cells.into_iter().enumerate().filter_map(|(at, cell)| shown(at).then_some(cell)).collect::<Vec<_>>())
    };
    let names: Vec<&'static str> = columns.iter().map(|(_, name, _)| *name).collect();
    let table = Table::new(state.shown().iter().map(row), columns.iter().map(|(.., width)| *width))
        .header(header(&names, 2..names.len()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selection = TableState::new().with_selected(state.selected_row());
    frame.render_stateful_widget(table, area, &mut selection);
}

/// The columns and widths that fit beside the graph.
struct ColumnLayout {
    held: bool,
    busy: bool,
    /// Queues: width of the bar in characters, and whether the number of records is shown.
    bar: usize,
    counted: bool,
}

impl ColumnLayout {
    fn of(width: u16) -> ColumnLayout {
        match width {
            100.. => ColumnLayout { held: true, busy: true, bar: BAR, counted: true },
            76.. => ColumnLayout { held: false, busy: true, bar: 6, counted: true },
            _ => ColumnLayout { held: false, busy: false, bar: 4, counted: false },
        }
    }

    /// Returns the columns that are shown.
    fn pick<T>(&self, columns: [T; 7]) -> Vec<T> {
        let shown = [true, true, true, true, self.held, self.busy, true];
        columns.into_iter().zip(shown).filter_map(|(column, shown)| shown.then_some(column)).collect()
    }

    fn widths(&self) -> Vec<Constraint> {
        let queue = self.bar as u16 + if self.counted { 11 } else { 5 };
        let [rate, count] = [Constraint::Length(7), Constraint::Length(8)];
        self.pick([Constraint::Fill(1), rate, rate, rate, count, rate, Constraint::Length(queue)])
    }
}

fn graph(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(parts) = &state.parts else {
        frame.render_widget(Paragraph::new("…"), area);
        return;
    };
    let about = match area.height {
        12.. => 3,
        8.. => 2,
        _ => 0,
    };
    let [title, table, about] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(about)]).areas(area);
    let status = Span::styled(parts.status.sentence(), status_style(state, &parts.status));
    frame.render_widget(Paragraph::new(TextLine::from(vec![Span::raw(format!("{}: ", parts.id)), status])), title);

    let room = ColumnLayout::of(area.width);
    let (lines, selected) = state.graph();
    let column = graph::width_of_ids(&lines) + 2;
    let rows: Vec<Row<'_>> = lines.iter().map(|line| row(state, line, column, &room)).collect();
    let names = room.pick(GRAPH);
    let table_of = Table::new(rows, room.widths())
        .header(header(&names, 1..names.len() - 1))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table_of, table, &mut TableState::new().with_selected(selected));

    if let Some(node) = state.node() {
        let [error, numbers] = graph::about(node, Utc::now());
        let style = if node.last_error.is_some() { styled(state, Color::Red) } else { Style::new() };
        let kept = parts.backlogs.iter().find(|source| source.connector == node.id).and_then(SourceAnswer::kept);
        let kept = kept.map(|kept| TextLine::from(format!("kept for {kept}")));
        let text: Vec<TextLine<'_>> =
            [TextLine::styled(error, style), TextLine::from(numbers)].into_iter().chain(kept).collect();
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), about);
    }
}

fn row<'a>(state: &State, line: &'a GraphLine, column: usize, room: &ColumnLayout) -> Row<'a> {
    let gap = column.saturating_sub(line.width());
    let name = if line.node.is_some() { bold() } else { Style::new() };
    let drawing = TextLine::from(vec![
        Span::raw(&*line.lead),
        Span::styled(&*line.text, name),
        Span::raw(" ".repeat(gap)),
        Span::styled(&*line.kind, Style::new().add_modifier(Modifier::DIM)),
    ]);
    let rate = |rate: Option<f64>| right(rate.map(short).unwrap_or_default());
    let failed = right(line.failed.map(|failed| short(failed as f64)).unwrap_or_default());
    let queue = line.queue.map_or_else(Cell::default, |queue| {
        let style = match queue.fill {
            fill if fill >= 1.0 => styled(state, Color::Red),
            fill if fill >= 0.7 => styled(state, Color::Yellow),
            _ => Style::new(),
        };
        Cell::new(queue.shown(room.bar, room.counted)).style(style)
    });
    Row::new(room.pick([
        Cell::new(drawing),
        rate(line.rows_in),
        rate(line.rows_out),
        if line.failed.is_some_and(|failed| failed > 0) { failed.style(styled(state, Color::Red)) } else { failed },
        right(line.held.map(|held| short(held as f64)).unwrap_or_default()),
        right(line.busy.map(percent).unwrap_or_default()),
        queue,
    ]))
}

fn complaint(state: &State) -> TextLine<'static> {
    if let Some(notice) = &state.notice {
        return TextLine::styled(notice.clone(), styled(state, Color::Red));
    }
    let selected = state.live.pipelines.iter().find(|pipeline| Some(&pipeline.id) == state.selected.as_ref());
    match selected.and_then(|pipeline| pipeline.status.cause()) {
        Some(text) => TextLine::styled(text.replace('\n', " "), styled(state, Color::Red)),
        None => TextLine::default(),
    }
}

fn hints(state: &State) -> TextLine<'static> {
    let text = match (&state.asked, &state.mode) {
        (Some(Action::Stop(id)), _) => format!("Stop {id}? It first delivers the records in flight. y/n"),
        (Some(Action::Start(id)), _) => format!("Start {id}? y/n"),
        (Some(_), _) => "y/n".to_owned(),
        (None, Mode::Filter) => format!("filter: {}▏  Enter applies it, Esc removes it", state.filter),
        (None, Mode::Graph) => "↑↓ nodes  s start/stop  Esc back  q quit".to_owned(),
        (None, Mode::List) => {
            let order = if state.reverse { ", reversed" } else { "" };
            let filter = if state.filter.is_empty() { String::new() } else { format!(" {:?}", state.filter) };
            format!(
                "Enter graph  s start/stop  o sort ({}{order})  r reverse  / filter{filter}  q quit",
                state.sort.word()
            )
        }
    };
    TextLine::from(text)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use serde_json::json;

    use super::*;
    use crate::cli::answers::LiveAnswer;

    const SINCE: &str = "2026-01-31T12:00:00.000Z";

    fn live(read: u64) -> LiveAnswer {
        let pipeline = |id: &str, status: serde_json::Value, read: u64, failed: u64| {
            json!({
                "id": id, "name": id, "status": status, "read": read, "delivered": read, "filtered": 0,
                "failed": failed, "deadLettered": failed, "inFlight": 0, "unacknowledged": 0,
                "oldestUnacknowledgedSeconds": 0.0, "backlog": { "bytes": 0, "ageSeconds": 0.0 },
            })
        };
        let mut stuck = pipeline(
            "stuck",
            json!({ "word": "running", "stalled": { "node": "out", "since": SINCE }, "run": 1 }),
            50,
            0,
        );
        (stuck["unacknowledged"], stuck["oldestUnacknowledgedSeconds"]) = (50.into(), 42.0.into());
        (stuck["inFlight"], stuck["backlog"]) = (50.into(), json!({ "records": 4_600_000, "ageSeconds": 7300.0 }));
        serde_json::from_value(json!({
            "at": SINCE, "version": "0.1.0", "uptimeSeconds": 90.0,
            "pipelines": [
                pipeline("busy", json!({ "word": "running", "run": 1 }), read, 3),
                pipeline("gone", json!({ "word": "degraded", "error": "disk full", "where": "out", "run": 2 }), 0, 0),
                stuck,
            ],
        }))
        .unwrap()
    }

    fn state() -> State {
        let start = Instant::now();
        let mut state = State::new("http://127.0.0.1:8080".to_owned(), live(1000), false, start);
        state.look(live(3000), start + Duration::from_secs(1));
        state
    }

    fn press(state: &mut State, code: KeyCode) -> Option<Action> {
        state.press(KeyEvent::from(code))
    }

    fn shown(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect::<Vec<_>>().join("\n")
    }

    /// A line without the space between its columns.
    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pipelines_are_listed_with_what_is_wrong_with_the_selected_one() {
        let mut state = state();
        press(&mut state, KeyCode::Down);
        let shown = shown(&state, 110, 8);
        let lines: Vec<String> = shown.lines().map(words).collect();
        assert_eq!(
            lines[..5],
            [
                "anabranch 0.1.0 at http://127.0.0.1:8080, up 90 s, 3 pipelines, 1 failed",
                "PIPELINE STATUS READ/S OUT/S IN FLIGHT BACKLOG FAILED DEAD LETTERS",
                "busy running 2.0k 2.0k 0 none 3 3",
                "gone degraded 0 0 0 none 0 0",
                "stuck stalled at out 0 0 50 / 42 s 4.6M records / 2 h 0 0",
            ]
        );
        assert_eq!(lines[6], "out: disk full");
    }

    /// On the usual terminal names and states can be read, and so are they on a smaller one.
    #[test]
    fn pipelines_are_readable_on_eighty_columns() {
        let mut state = state();
        let long = &mut state.live.pipelines[0];
        let id = long.id.clone();
        (long.failed, long.dead_lettered) = (123_456, 123_456);
        for (width, name) in [(80, 19), (60, 19)] {
            let shown = shown(&state, width, 24);
            assert!(shown.lines().all(|line| line.chars().count() <= usize::from(width)), "{shown}");
            let header = shown.lines().nth(1).unwrap();
            let status = header.find("STATUS").unwrap_or_else(|| panic!("{shown}"));
            assert!(status >= name, "{width}: {shown}");
            assert!(header.contains("FAILED"), "{shown}");
            for word in [&*id, "running", "degraded", "123456"] {
                assert!(shown.contains(word), "{width}, {word}: {shown}");
            }
        }
        assert!(shown(&state, 80, 24).contains("4.6M records"), "backlog");
    }

    #[test]
    fn they_are_sorted_and_filtered() {
        let mut state = state();
        let ids = |state: &State| state.shown().iter().map(|pipeline| pipeline.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&state), ["busy", "gone", "stuck"]);
        press(&mut state, KeyCode::Char('o'));
        assert_eq!(ids(&state), ["gone", "stuck", "busy"], "by urgency");
        press(&mut state, KeyCode::Char('o'));
        assert_eq!(ids(&state), ["busy", "gone", "stuck"], "by rate");
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(ids(&state), ["stuck", "gone", "busy"]);
        for typed in "/STU".chars() {
            press(&mut state, KeyCode::Char(typed));
        }
        assert_eq!((ids(&state), state.selected.as_deref()), (vec!["stuck".to_owned()], Some("stuck")));
        press(&mut state, KeyCode::Esc);
        assert_eq!(ids(&state).len(), 3);
    }

    #[test]
    fn nothing_is_started_or_stopped_unasked() {
        let mut state = state();
        assert_eq!(press(&mut state, KeyCode::Char('s')), None);
        assert!(shown(&state, 110, 8).contains("Stop busy? It first delivers the records in flight. y/n"));
        assert_eq!(press(&mut state, KeyCode::Char('n')), None);
        assert_eq!(press(&mut state, KeyCode::Char('y')), None);
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Action::Stop("busy".to_owned())));
        press(&mut state, KeyCode::Down);
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(press(&mut state, KeyCode::Char('y')), Some(Action::Start("gone".to_owned())));
    }

    #[test]
    fn a_graph_shows_its_nodes_and_their_queues() {
        let node = |index: usize, id: &str, rows: u64, failed: u64| {
            json!({
                "node": index, "id": id, "rowsIn": rows, "selected": rows, "rowsOut": rows, "filtered": 0,
                "failed": failed, "held": 7, "busySeconds": rows as f64 / 1000.0,
            })
        };
        let detail = |rows: u64| {
            let mut out = node(1, "out", rows / 2, 2);
            out["lastError"] = json!({ "message": "too long", "code": "x.long", "at": SINCE });
            serde_json::from_value(json!({
                "id": "busy", "at": "", "status": { "word": "running", "run": 1 }, "totals": {}, "lanes": [],
                "backlogs": [{ "connector": "in", "missed": 0, "retention": { "bytes": 3 << 20, "status": "reserved" } }],
                "nodes": [node(0, "in", rows, 0), out],
                "edges": [{
                    "from": 0, "to": 1, "rows": rows, "queuedRows": 512, "queuedBytes": 1000, "boundRows": 512,
                    "boundBytes": 100_000, "full": true,
                }],
            }))
            .unwrap()
        };
        let mut state = state();
        assert_eq!(press(&mut state, KeyCode::Enter), Some(Action::Open("busy".to_owned())));
        let start = Instant::now();
        assert!(state.look_at(detail(0), start), "its drawing is asked for");
        state.outline = Some(
            serde_json::from_value(json!({ "rows": [
                { "lead": "╭ ", "text": "S0 read", "about": "stage" },
                { "lead": "│ ", "text": "in", "kind": "source file", "about": "node", "node": 0 },
                { "lead": "╰─► ", "text": "S1", "about": "edge", "from": 0, "to": 1 },
                { "lead": "╭ ", "text": "S1 write", "about": "stage" },
                { "lead": "│ ", "text": "out", "kind": "destination file", "about": "node", "node": 1 },
            ]}))
            .unwrap(),
        );
        assert!(!state.look_at(detail(500), start + Duration::from_secs(1)), "it is still the same");
        let lines: Vec<String> = shown(&state, 100, 16).lines().map(words).collect();
        assert_eq!(
            lines[1..8],
            [
                "busy: running",
                "GRAPH IN/S OUT/S FAILED HELD BUSY QUEUE",
                "╭ S0 read",
                "│ in source file 500 500 0 7 50 %",
                "╰─► S1 500 ██████████ 512 full",
                "╭ S1 write",
                "│ out destination file 250 250 2 7 25 %",
            ]
        );
        assert!(lines[11] == "in: no error" && lines[12].starts_with("500 in, 500 out"), "{lines:?}");
        assert_eq!(lines[13], "kept for in: 3.0 MiB (reserved)");
        // The next node, on a small screen: the least important lines are left out first.
        press(&mut state, KeyCode::Down);
        let lines: Vec<String> = shown(&state, 60, 11).lines().map(words).collect();
        assert_eq!(lines[2], "GRAPH IN/S OUT/S FAILED QUEUE");
        assert!(lines.iter().any(|line| line.starts_with("│ out") && line.ends_with("250 250 2")), "{lines:?}");
        let said = |line: &String| line.starts_with("out: last error") && line.ends_with(", x.long: too long");
        assert!(lines.iter().any(said), "{lines:?}");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.mode, Mode::List);
    }

    #[test]
    fn a_small_screen_is_no_problem() {
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &state())).unwrap();
        }
    }
}
