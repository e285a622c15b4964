//! `anabranch quickstart`.

use super::{Context, Exit, Report, pipelines, run};
use crate::files::system;
use crate::settings::{Layers, document};

pub(super) fn quickstart(context: &Context) -> Report {
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
        // Beside a service that has the usual port.
        ("api.http.address", "127.0.0.1:0".to_owned()),
    ];
    // Neither the directory it is started in nor the environment changes the demo.
    let settings = match (Layers { flags: &flags, environment: &[] }).resolve() {
        Ok((settings, _)) => settings,
        Err(refused) => {
            return Report::new("quickstart").notes(context.rendered(&refused.findings, &refused.files)).fail(
                Exit::Failed,
                "quickstart.settings",
                "the defaults cannot be used",
            );
        }
    };
    let path = directory.path().to_path_buf();
    let before_abort = Box::new(move || drop(std::fs::remove_dir_all(&path)));
    run::serve("quickstart", settings, false, Some(before_abort), context)
}

fn refused(error: &std::io::Error) -> Report {
    let message = format!("cannot make a temporary directory: {}", system(error));
    Report::new("quickstart").fail(Exit::Environment, "quickstart.no_directory", message)
}
