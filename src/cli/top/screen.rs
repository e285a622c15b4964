//! The event loop: reads keys and draws the screen.

use std::time::{Duration, Instant};

use anabranch_process::files::system;
use anabranch_process::terminal::is_unsafe;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::{Value, json};

use super::draw::draw;
use super::graph::outline_path;
use super::state::{Action, Mode, State};
use super::{COMMAND, Report};
use crate::cli::Exit;
use crate::cli::answers::{LIVE, LiveAnswer, PartsAnswer, live_path};
use crate::cli::remote::Remote;
use crate::client::{ClientError, escaped};
use crate::codes;

/// Shows the screen until the user quits, starting with `pipeline` if given, otherwise with the list.
pub(super) fn run(
    remote: &Remote,
    first: LiveAnswer,
    pipeline: Option<String>,
    interval: Duration,
    color: bool,
) -> Result<Report, Box<Report>> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot use the terminal: {}", system(&error));
        Box::new(Report::new(COMMAND).fail(Exit::Environment, codes::TOP_TERMINAL, message))
    };
    let mut state = State::new(remote.url(), first, color, Instant::now());
    if let Some(id) = pipeline {
        state.open(id);
        look(remote, &mut state);
    }
    let terminal = ratatui::try_init().map_err(failed)?;
    let watched = watch(terminal, remote, state, interval);
    ratatui::try_restore().and(watched).map_err(failed)?;
    Ok(Report::new(COMMAND))
}

fn watch(mut terminal: DefaultTerminal, remote: &Remote, mut state: State, interval: Duration) -> std::io::Result<()> {
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(|frame| {
            draw(frame, &state);
            give_no_orders(frame.buffer_mut());
        })?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match state.press(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(action) => {
                        act(remote, &mut state, &action);
                        due = Instant::now();
                    }
                    None => continue,
                },
                _ => continue,
            }
        }
        if Instant::now() >= due {
            look(remote, &mut state);
            due = Instant::now() + interval;
        }
    }
}

/// Replaces characters in names and texts of a service that can control a terminal. Control characters are already
/// removed.
fn give_no_orders(cells: &mut Buffer) {
    for cell in cells.content.iter_mut().filter(|cell| cell.symbol().contains(is_unsafe)) {
        let seen: String = cell.symbol().chars().filter(|c| !is_unsafe(*c)).collect();
        cell.set_symbol(if seen.is_empty() { "\u{fffd}" } else { &seen });
    }
}

fn act(remote: &Remote, state: &mut State, action: &Action) {
    let (client, runtime) = remote.parts();
    let path = match action {
        Action::Start(id) => format!("/v1/pipelines/{}/start", escaped(id)),
        Action::Stop(id) => format!("/v1/pipelines/{}/stop", escaped(id)),
        Action::Open(_) | Action::Quit => return,
    };
    if let Err(error) = runtime.block_on(client.post::<Value>(&path, &json!({}))) {
        state.notice = Some(error.to_string());
    }
}

/// Updates the state. If the service does not answer, the last state stays on the screen with an error below it.
fn look(remote: &Remote, state: &mut State) {
    if let Err(error) = try_look(remote, state) {
        state.notice = Some(error.to_string());
    }
}

fn try_look(remote: &Remote, state: &mut State) -> Result<(), ClientError> {
    let (client, runtime) = remote.parts();
    let live = runtime.block_on(client.get::<LiveAnswer>(LIVE))?;
    state.look(live, Instant::now());
    if state.mode == Mode::Graph
        && let Some(id) = state.selected.clone()
    {
        let parts: PartsAnswer = runtime.block_on(client.get(&live_path(&id)))?;
        let is_new = state.look_at(parts, Instant::now());
        if is_new {
            // A pipeline that is not valid has no outline.
            state.outline = runtime.block_on(client.get(&outline_path(&id))).ok();
        }
    }
    Ok(())
}
