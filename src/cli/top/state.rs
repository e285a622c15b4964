//! What is on the screen, and what keys do to it.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::numbers::{Detail, Live, Pipeline, Rate, Rates};

/// What is asked of the service, or of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Start(String),
    Stop(String),
    /// Look at a pipeline at once.
    Open(String),
}

/// What the keys are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    List,
    /// Typing a filter.
    Filter,
    /// The graph of one pipeline.
    Graph,
}

/// By what pipelines are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Status,
    Rate,
    Lag,
    Failed,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Name, Sort::Status, Sort::Rate, Sort::Lag, Sort::Failed];

    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Status => "status",
            Sort::Rate => "rate",
            Sort::Lag => "lag",
            Sort::Failed => "failures",
        }
    }
}

/// Rates of one node.
#[derive(Debug, Default)]
pub(super) struct NodeRates {
    pub(super) rows_in: Rate,
    pub(super) rows_out: Rate,
    pub(super) busy: Rate,
}

pub(super) struct State {
    pub(super) url: String,
    pub(super) color: bool,
    pub(super) live: Live,
    pub(super) rates: Rates,
    pub(super) mode: Mode,
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) filter: String,
    /// The pipeline that keys are about.
    pub(super) selected: Option<String>,
    /// What is to be done if the next key is y.
    pub(super) asked: Option<Action>,
    pub(super) detail: Option<Detail>,
    pub(super) node_rates: HashMap<usize, NodeRates>,
    /// First line of the graph that is shown.
    pub(super) scrolled: usize,
    /// Something to say below.
    pub(super) notice: Option<String>,
}

impl State {
    pub(super) fn new(url: String, live: Live, color: bool, now: Instant) -> Self {
        let mut state = State {
            url,
            color,
            live: Live { pipelines: Vec::new(), ..live.clone() },
            rates: Rates::default(),
            mode: Mode::List,
            sort: Sort::Name,
            reverse: false,
            filter: String::new(),
            selected: None,
            asked: None,
            detail: None,
            node_rates: HashMap::new(),
            scrolled: 0,
            notice: None,
        };
        state.look(live, now);
        state
    }

    /// Takes a new look at all pipelines.
    pub(super) fn look(&mut self, live: Live, now: Instant) {
        self.rates.look(&live, now);
        self.live = live;
        self.keep_selected();
    }

    /// Takes a new look at the pipeline whose graph is shown.
    pub(super) fn look_at(&mut self, detail: Detail, now: Instant) {
        let same = self.detail.as_ref().is_some_and(|old| old.id == detail.id && old.status.run == detail.status.run);
        if !same {
            self.node_rates.clear();
        }
        for node in &detail.nodes {
            let rates = self.node_rates.entry(node.node).or_default();
            rates.rows_in.look(node.rows_in as f64, now);
            rates.rows_out.look(node.rows_out as f64, now);
            rates.busy.look(node.busy_seconds, now);
        }
        self.detail = Some(detail);
    }

    /// The pipelines that the filter lets through, in their order.
    pub(super) fn shown(&self) -> Vec<&Pipeline> {
        let wanted = self.filter.to_lowercase();
        let matches = |pipeline: &&Pipeline| {
            pipeline.id.to_lowercase().contains(&wanted) || pipeline.status.sentence().contains(&wanted)
        };
        let mut shown: Vec<&Pipeline> = self.live.pipelines.iter().filter(matches).collect();
        shown.sort_by(|a, b| {
            let order = self.compare(a, b).then_with(|| a.id.cmp(&b.id));
            if self.reverse { order.reverse() } else { order }
        });
        shown
    }

    /// Numbers: the largest first. Statuses: what needs somebody first.
    fn compare(&self, a: &Pipeline, b: &Pipeline) -> Ordering {
        let urgency = |pipeline: &Pipeline| match pipeline.status.word.as_str() {
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
            Sort::Lag => b.lag_rows.cmp(&a.lag_rows),
            Sort::Failed => b.failed.cmp(&a.failed),
        }
    }

    /// Number of the selected pipeline among those that are shown.
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

    /// What a key does.
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
                (self.mode, self.detail, self.scrolled) = (Mode::Graph, None, 0);
                return Some(Action::Open(id));
            }
            _ => {}
        }
        None
    }

    fn press_in_graph(&mut self, code: KeyCode) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => (self.mode, self.detail) = (Mode::List, None),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(10),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            KeyCode::Char('s') => self.ask(),
            _ => {}
        }
        None
    }

    /// Asks whether to start or stop the selected pipeline.
    fn ask(&mut self) {
        let Some(id) = self.selected.clone() else { return };
        let is_live = self.live.pipelines.iter().any(|pipeline| pipeline.id == id && pipeline.status.is_live());
        self.asked = Some(if is_live { Action::Stop(id) } else { Action::Start(id) });
    }
}
