//! The screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::numbers::{self, Edge, Node, Status};
use super::state::{Action, Mode, State};
use crate::terminal::short;

/// Columns of the list.
pub(super) const COLUMNS: [&str; 8] =
    ["PIPELINE", "STATUS", "READ/S", "OUT/S", "IN FLIGHT", "LAG", "FAILED", "DEAD LETTERS"];
const GRAPH: [&str; 7] = ["NODE", "IN/S", "OUT/S", "FAILED", "HELD", "BUSY", "QUEUE IN FRONT"];
/// Characters of a bar.
const BAR: usize = 10;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let [head, body, below, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(state)), head);
    match (&state.mode, &state.detail) {
        (Mode::Graph, _) => graph(frame, state, body),
        (Mode::List | Mode::Filter, _) => list(frame, state, body),
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

fn headline(state: &State) -> Line<'static> {
    let count = state.live.pipelines.len();
    let bad = |pipeline: &&numbers::Pipeline| matches!(pipeline.status.word.as_str(), "degraded" | "invalid");
    let bad = state.live.pipelines.iter().filter(bad).count();
    let mut text = format!(
        "anabranch {} at {}, up {}, {count} pipeline{}",
        state.live.version,
        state.url,
        numbers::age(state.live.uptime_seconds),
        if count == 1 { "" } else { "s" }
    );
    if bad > 0 {
        text.push_str(&format!(", {bad} not well"));
    }
    Line::styled(text, bold())
}

fn status_style(state: &State, status: &Status) -> Style {
    match status.word.as_str() {
        _ if status.stalled.is_some() => styled(state, Color::Yellow),
        "running" => styled(state, Color::Green),
        "degraded" | "invalid" => styled(state, Color::Red),
        "recovering" | "starting" => styled(state, Color::Yellow),
        _ => Style::new(),
    }
}

/// A cell that ends where its column ends.
fn right(text: String) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned())
}

fn header(columns: &[&'static str], numbers: std::ops::Range<usize>) -> Row<'static> {
    let cell = |(at, name): (usize, &&'static str)| {
        let line = Line::from(*name);
        Cell::new(if numbers.contains(&at) { line.right_aligned() } else { line })
    };
    Row::new(columns.iter().enumerate().map(cell).collect::<Vec<_>>()).style(bold())
}

fn list(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let row = |pipeline: &&numbers::Pipeline| {
        let (read, delivered) = state.rates.of(&pipeline.id);
        let failed = right(pipeline.failed.to_string());
        let failed = if pipeline.failed > 0 { failed.style(styled(state, Color::Red)) } else { failed };
        Row::new(vec![
            Cell::new(pipeline.id.clone()),
            Cell::new(pipeline.status.sentence()).style(status_style(state, &pipeline.status)),
            right(short(read)),
            right(short(delivered)),
            right(short(pipeline.in_flight as f64)),
            right(numbers::lag(pipeline)),
            failed,
            right(pipeline.dead_lettered.to_string()),
        ])
    };
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Length(12),
    ];
    let table = Table::new(state.shown().iter().map(row), widths)
        .header(header(&COLUMNS, 2..8))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut selection = TableState::new().with_selected(state.selected_row());
    frame.render_stateful_widget(table, area, &mut selection);
}

fn graph(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let Some(detail) = &state.detail else {
        frame.render_widget(Paragraph::new("…"), area);
        return;
    };
    let rows: Vec<Row<'_>> = detail.nodes.iter().map(|node| node_row(state, node, &detail.edges)).collect();
    let most = rows.len().saturating_sub(usize::from(area.height).saturating_sub(2));
    let rows = rows.into_iter().skip(state.scrolled.min(most));
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(28),
    ];
    let [title, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let status = Span::styled(detail.status.sentence(), status_style(state, &detail.status));
    frame.render_widget(Paragraph::new(Line::from(vec![Span::raw(format!("{}: ", detail.id)), status])), title);
    frame.render_widget(Table::new(rows, widths).header(header(&GRAPH, 1..6)), table);
}

fn node_row<'a>(state: &State, node: &'a Node, edges: &[Edge]) -> Row<'a> {
    let rates = state.node_rates.get(&node.node);
    let rate = |of: fn(&super::state::NodeRates) -> f64| rates.map_or(0.0, of);
    let busy = rate(|rates| rates.busy.per_second()) * 100.0;
    let failed = right(node.failed.to_string());
    let failed = if node.failed > 0 { failed.style(styled(state, Color::Red)) } else { failed };
    // Edges to the same node share its queue.
    let queue = edges.iter().filter(|edge| edge.to == node.node).find_map(|edge| Some((edge, edge.fill()?)));
    let queue = match queue {
        None => Cell::new(""),
        Some((edge, fill)) => {
            let style = match fill {
                fill if fill >= 1.0 => styled(state, Color::Red),
                fill if fill >= 0.7 => styled(state, Color::Yellow),
                _ => Style::new(),
            };
            let text = format!("{} {}", bar(fill), short(edge.queued_rows as f64));
            Cell::new(if edge.full { format!("{text} full") } else { text }).style(style)
        }
    };
    let from: Vec<usize> = edges.iter().filter(|edge| edge.to == node.node).map(|edge| edge.from).collect();
    let name = match from.is_empty() {
        true => node.id.clone(),
        false => format!("→ {}", node.id),
    };
    Row::new(vec![
        Cell::new(name),
        right(short(rate(|rates| rates.rows_in.per_second()))),
        right(short(rate(|rates| rates.rows_out.per_second()))),
        failed,
        right(short(node.held as f64)),
        right(format!("{busy:.0} %")),
        queue,
    ])
}

fn bar(fill: f64) -> String {
    let full = ((fill * BAR as f64).round() as usize).min(BAR);
    // Something is in it where something is shown.
    let full = if fill > 0.0 { full.max(1) } else { full };
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

fn complaint(state: &State) -> Line<'static> {
    if let Some(notice) = &state.notice {
        return Line::styled(notice.clone(), styled(state, Color::Red));
    }
    let selected = state.live.pipelines.iter().find(|pipeline| Some(&pipeline.id) == state.selected.as_ref());
    let of_status = selected.and_then(|pipeline| pipeline.status.complaint());
    let of_nodes = || {
        let nodes = state.detail.iter().flat_map(|detail| &detail.nodes);
        nodes.filter_map(|node| Some(format!("{}: {}", node.id, node.last_error.as_ref()?.message))).next_back()
    };
    match of_status.or_else(of_nodes) {
        Some(text) => Line::styled(text.replace('\n', " "), styled(state, Color::Red)),
        None => Line::default(),
    }
}

fn hints(state: &State) -> Line<'static> {
    let text = match (&state.asked, &state.mode) {
        (Some(Action::Stop(id)), _) => format!("Stop {id}? It delivers what it has read. y/n"),
        (Some(Action::Start(id)), _) => format!("Start {id}? y/n"),
        (Some(_), _) => "y/n".to_owned(),
        (None, Mode::Filter) => format!("filter: {}▏  Enter keeps it, Esc removes it", state.filter),
        (None, Mode::Graph) => "Esc back  s start/stop  ↑↓ scroll  q quit".to_owned(),
        (None, Mode::List) => {
            let order = if state.reverse { ", reversed" } else { "" };
            let filter = if state.filter.is_empty() { String::new() } else { format!(" {:?}", state.filter) };
            format!(
                "Enter graph  s start/stop  o sort ({}{order})  r reverse  / filter{filter}  q quit",
                state.sort.word()
            )
        }
    };
    Line::from(text)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};
    use serde_json::json;

    use super::*;

    fn live(read: u64) -> numbers::Live {
        let pipeline = |id: &str, status: serde_json::Value, read: u64, failed: u64| {
            json!({
                "id": id, "name": id, "status": status, "read": read, "delivered": read, "filtered": 0,
                "failed": failed, "deadLettered": failed, "inFlight": 0, "lagRows": 0, "lagSeconds": 0.0,
            })
        };
        let mut stuck =
            pipeline("stuck", json!({ "word": "running", "stalled": { "node": "out", "since": "" }, "run": 1 }), 50, 0);
        (stuck["lagRows"], stuck["lagSeconds"], stuck["inFlight"]) = (50.into(), 42.0.into(), 50.into());
        serde_json::from_value(json!({
            "at": "", "version": "0.1.0", "uptimeSeconds": 90.0,
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

    fn shown(state: &State, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..8).map(line).collect::<Vec<_>>().join("\n")
    }

    /// A line without the space between its columns.
    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pipelines_are_listed_with_what_is_wrong_with_the_selected_one() {
        let mut state = state();
        press(&mut state, KeyCode::Down);
        let shown = shown(&state, 110);
        let lines: Vec<String> = shown.lines().map(words).collect();
        assert_eq!(
            lines[..5],
            [
                "anabranch 0.1.0 at http://127.0.0.1:8080, up 90 s, 3 pipelines, 1 not well",
                "PIPELINE STATUS READ/S OUT/S IN FLIGHT LAG FAILED DEAD LETTERS",
                "busy running 2.0k 2.0k 0 0 3 3",
                "gone degraded 0 0 0 0 0 0",
                "stuck stalled at out 0 0 50 50 / 42 s 0 0",
            ]
        );
        assert_eq!(lines[6], "out: disk full");
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
        assert!(shown(&state, 110).contains("Stop busy? It delivers what it has read. y/n"));
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
            out["lastError"] = json!({ "message": "too long", "code": "x", "at": "" });
            serde_json::from_value(json!({
                "id": "busy", "at": "", "status": { "word": "running", "run": 1 }, "totals": {}, "lanes": [],
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
        state.look_at(detail(0), start);
        state.look_at(detail(500), start + Duration::from_secs(1));
        let lines: Vec<String> = shown(&state, 100).lines().map(words).collect();
        assert_eq!(
            lines[1..5],
            [
                "busy: running",
                "NODE IN/S OUT/S FAILED HELD BUSY QUEUE IN FRONT",
                "in 500 500 0 7 50 %",
                "→ out 250 250 2 7 25 % ██████████ 512 full",
            ]
        );
        assert_eq!(lines[6], "out: too long");
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
