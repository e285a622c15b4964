//! The state of the screen, and how keys change it.

use std::cmp::Ordering;
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::graph::{self, GraphLine, Outline};
use super::rates::{PartRates, Rates};
use crate::cli::answers::{LiveAnswer, LivePipeline, NodeAnswer, PartsAnswer};

/// An action that a key requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Start(String),
    Stop(String),
    /// Fetch a pipeline immediately.
    Open(String),
}

/// The meaning of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    List,
    /// A filter is being typed.
    Filter,
    /// The graph of one pipeline is shown.
    Graph,
}

/// The sort order of pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Status,
    Rate,
    Backlog,
    Failed,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Name, Sort::Status, Sort::Rate, Sort::Backlog, Sort::Failed];

    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Status => "status",
            Sort::Rate => "rate",
            Sort::Backlog => "backlog",
            Sort::Failed => "failures",
        }
    }
}

pub(super) struct State {
    pub(super) url: String,
    pub(super) color: bool,
    pub(super) live: LiveAnswer,
    pub(super) rates: Rates,
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// The selected pipeline.
    pub(super) selected: Option<String>,
    /// The action to perform if the user confirms with y.
    pub(super) asked: Option<Action>,
    /// The pipeline whose graph is shown.
    pub(super) parts: Option<PartsAnswer>,
    pub(super) outline: Option<Outline>,
    part_rates: PartRates,
    /// The selected node of the graph.
    node: Option<usize>,
    /// A message for the line below.
    pub(super) notice: Option<String>,
}

impl State {
    pub(super) fn new(url: String, live: LiveAnswer, color: bool, now: Instant) -> Self {
        let mut state = State {
            url,
            color,
            live: LiveAnswer { pipelines: Vec::new(), ..live.clone() },
            rates: Rates::default(),
            mode: Mode::List,
            sort: Sort::Name,
            reverse: false,
            filter: String::new(),
            selected: None,
            asked: None,
            parts: None,
            outline: None,
            part_rates: PartRates::default(),
            node: None,
            notice: None,
        };
        state.look(live, now);
        state
    }

    /// Sets the counters of all pipelines.
    pub(super) fn look(&mut self, live: LiveAnswer, now: Instant) {
        self.rates.look(&live, now);
        self.live = live;
        if self.mode != Mode::Graph {
            self.keep_selected();
        }
    }

    /// Shows the graph of a pipeline from the next update on.
    pub(super) fn open(&mut self, id: String) {
        (self.mode, self.parts, self.outline, self.node) = (Mode::Graph, None, None, None);
        self.part_rates = PartRates::default();
        self.selected = Some(id);
    }

    /// Sets the counters of the pipeline whose graph is shown. Returns `true` if its outline must be fetched again.
    pub(super) fn look_at(&mut self, parts: PartsAnswer, now: Instant) -> bool {
        let ids = |parts: &PartsAnswer| parts.nodes.iter().map(|node| node.id.clone()).collect::<Vec<_>>();
        let same = |old: &PartsAnswer| old.status.run == parts.status.run && ids(old) == ids(&parts);
        let is_new = self.outline.is_none() || !self.parts.as_ref().is_some_and(same);
        self.part_rates.look(&parts, now);
        self.parts = Some(parts);
        is_new
    }

    /// Returns the lines of the graph and the index of the selected one.
    pub(super) fn graph(&self) -> (Vec<GraphLine>, Option<usize>) {
        let Some(parts) = &self.parts else { return (Vec::new(), None) };
        let none = Outline::default();
        let lines = graph::lines(self.outline.as_ref().unwrap_or(&none), parts, &self.part_rates);
        let is_selected = |line: &GraphLine| line.node.is_some() && line.node == self.node;
        let selected = lines.iter().position(is_selected).or_else(|| lines.iter().position(|line| line.node.is_some()));
        (lines, selected)
    }

    /// Returns the selected node of the graph.
    pub(super) fn node(&self) -> Option<&NodeAnswer> {
        let (lines, selected) = self.graph();
        let node = lines.get(selected?)?.node;
        self.parts.as_ref()?.nodes.iter().find(|found| Some(found.node) == node)
    }

    fn select_node(&mut self, move_by: isize) {
        let (lines, selected) = self.graph();
        let nodes: Vec<usize> = lines.iter().filter_map(|line| line.node).collect();
        let selected = selected.and_then(|at| lines[at].node);
        let at = nodes.iter().position(|node| Some(*node) == selected).unwrap_or(0);
        let at = at.saturating_add_signed(move_by).min(nodes.len().saturating_sub(1));
        self.node = nodes.get(at).copied();
    }

    /// Returns the pipelines that match the filter, sorted.
    pub(super) fn shown(&self) -> Vec<&LivePipeline> {
        let wanted = self.filter.to_lowercase();
        let matches = |pipeline: &&LivePipeline| {
            pipeline.id.to_lowercase().contains(&wanted) || pipeline.status.sentence().contains(&wanted)
        };
        let mut shown: Vec<&LivePipeline> = self.live.pipelines.iter().filter(matches).collect();
        shown.sort_by(|a, b| {
            let order = self.compare(a, b).then_with(|| a.id.cmp(&b.id));
            if self.reverse { order.reverse() } else { order }
        });
        shown
    }

    /// Compares pipelines: by number, largest first; by status, the most urgent first.
    fn compare(&self, a: &LivePipeline, b: &LivePipeline) -> Ordering {
        let urgency = |pipeline: &LivePipeline| match pipeline.status.word.as_str() {
            "degraded" => 0,
            "invalid" => 1,
            "recovering" => 2,
            _ if pipeline.status.stalled.is_some() => 3,
            "starting" => 4,
            "running" => 5,
            "idle" => 6,
            _ => 7,
        };
        match self.sort {
            Sort::Name => Ordering::Equal,
            Sort::Status => urgency(a).cmp(&urgency(b)),
            Sort::Rate => self.rates.of(&b.id).0.total_cmp(&self.rates.of(&a.id).0),
            Sort::Backlog => {
                let order = |pipeline: &LivePipeline| {
                    let backlog = pipeline.backlog.unwrap_or_default();
                    (backlog.age_seconds.unwrap_or(0.0), backlog.count().unwrap_or(0))
                };
                let ((older, more), (age, count)) = (order(b), order(a));
                older.total_cmp(&age).then(more.cmp(&count))
            }
            Sort::Failed => b.failed.cmp(&a.failed),
        }
    }

    /// Returns the index of the selected pipeline among those that are shown.
    pub(super) fn selected_row(&self) -> Option<usize> {
        let selected = self.selected.as_deref()?;
        self.shown().iter().position(|pipeline| pipeline.id == selected)
    }

    fn keep_selected(&mut self) {
        if self.selected_row().is_none() {
            self.selected = self.shown().first().map(|pipeline| pipeline.id.clone());
        }
    }

    fn select(&mut self, move_by: isize) {
        let shown = self.shown();
        let row = self.selected_row().unwrap_or(0).saturating_add_signed(move_by).min(shown.len().saturating_sub(1));
        self.selected = shown.get(row).map(|pipeline| pipeline.id.clone());
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        self.notice = None;
        if let Some(asked) = self.asked.take() {
            return matches!(key.code, KeyCode::Char('y' | 'Y') | KeyCode::Enter).then_some(asked);
        }
        match self.mode {
            Mode::Filter => {
                self.type_filter(key.code);
                None
            }
            Mode::List => self.press_in_list(key.code),
            Mode::Graph => self.press_in_graph(key.code),
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::List;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(typed) => self.filter.push(typed),
            _ => {}
        }
        self.keep_selected();
    }

    fn press_in_list(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc if self.filter.is_empty() => return Some(Action::Quit),
            KeyCode::Esc => {
                self.filter.clear();
                self.keep_selected();
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            KeyCode::Char('o') => {
                let at = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.ask(),
            KeyCode::Enter => {
                let id = self.selected.clone()?;
                self.open(id.clone());
                return Some(Action::Open(id));
            }
            _ => {}
        }
        None
    }

    fn press_in_graph(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => {
                (self.mode, self.parts) = (Mode::List, None);
                self.keep_selected();
            }
            KeyCode::Down | KeyCode::Char('j') => self.select_node(1),
            KeyCode::Up | KeyCode::Char('k') => self.select_node(-1),
            KeyCode::PageDown => self.select_node(10),
            KeyCode::PageUp => self.select_node(-10),
            KeyCode::Home => self.select_node(isize::MIN),
            KeyCode::End => self.select_node(isize::MAX),
            KeyCode::Char('s') => self.ask(),
            _ => {}
        }
        None
    }

    /// Asks for confirmation to start or stop the selected pipeline.
    fn ask(&mut self) {
        let Some(id) = self.selected.clone() else { return };
        let is_live = self.live.pipelines.iter().any(|pipeline| pipeline.id == id && pipeline.status.is_live());
        self.asked = Some(if is_live { Action::Stop(id) } else { Action::Start(id) });
    }
}
