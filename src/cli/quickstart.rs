//! `anabranch quickstart`.

use std::net::SocketAddr;

use anabranch_process::files::system;
use anabranch_settings::{Layers, document};

use super::run::{ServeOptions, serve};
use super::{Context, Exit, Report, pipelines};
use crate::codes;

/// Run a demo pipeline in a temporary directory and show it in the browser.
///
/// Prints the address of the service's web page and, if there is a display, opens it. Ctrl+C stops the service and
/// removes the directory.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print the address of the page without opening it.
    #[arg(long)]
    no_open: bool,
}

pub(super) fn quickstart(arguments: &Arguments, context: &Context) -> Report {
    let directory = match tempfile::Builder::new().prefix("anabranch-quickstart-").tempdir() {
        Ok(directory) => directory,
        Err(error) => return refused(&error),
    };
    let file = directory.path().join("demo-pipeline.yaml");
    let config = directory.path().join("anabranch.yaml");
    let written = std::fs::write(&file, pipelines::DEMO).and_then(|()| std::fs::write(&config, document()));
    if let Err(error) = written {
        return refused(&error);
    }
    let flags = [
        ("config.path", config.display().to_string()),
        ("pipelines.path", file.display().to_string()),
        ("db.type", "inmemory".to_owned()),
        // Does not conflict with a service at the default port.
        ("api.http.address", "127.0.0.1:0".to_owned()),
    ];
    // The current directory and the environment do not affect the demo.
    let settings = match (Layers { flags: &flags, environment: &[] }).resolve() {
        Ok((settings, _)) => settings,
        Err(refused) => {
            return Report::new("quickstart").notes(context.rendered(&refused.findings, &refused.files)).fail(
                Exit::Failed,
                codes::QUICKSTART_SETTINGS,
                "the default settings cannot be used",
            );
        }
    };
    let path = directory.path().to_path_buf();
    let before_abort = Box::new(move || drop(std::fs::remove_dir_all(&path)));
    // If the output is not a terminal, do not open a browser.
    let opens = !arguments.no_open && context.terminal && !context.json && has_display();
    let on_listening = Box::new(move |address: SocketAddr| show(address, opens));
    let options =
        ServeOptions { before_abort: Some(before_abort), on_listening: Some(on_listening), ..ServeOptions::default() };
    serve("quickstart", settings, options, context)
}

/// Prints the address of the page, and opens it if requested.
fn show(address: SocketAddr, opens: bool) {
    let url = format!("http://{address}/");
    let _ = anabranch_process::terminal::print(
        anabranch_process::terminal::Stream::Err,
        &format!("The web interface of this service is at {url}\n"),
    );
    if opens && let Err(error) = open::that_detached(&url) {
        tracing::debug!(%error, "the browser cannot be opened");
    }
}

/// Returns `true` if there is a display for a browser.
fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

fn refused(error: &std::io::Error) -> Report {
    let message = format!("cannot create a temporary directory: {}", system(error));
    Report::new("quickstart").fail(Exit::Environment, codes::QUICKSTART_NO_DIRECTORY, message)
}
