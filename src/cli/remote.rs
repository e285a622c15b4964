//! Access of commands to a running service.

use anabranch_process::runtime;
use anabranch_settings::Settings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

use super::{Exit, Report};
use crate::client::{Client, ClientError};
use crate::codes;

/// The running service that a command calls, and the runtime that the calls need. Failures become the report of the
/// command.
pub(super) struct Remote {
    command: &'static str,
    client: Client,
    runtime: Runtime,
}

impl Remote {
    /// Returns the service of these settings. Does not connect: the first request does.
    ///
    /// # Errors
    /// The settings do not contain a usable address.
    pub(super) fn of(command: &'static str, settings: &Settings) -> Result<Self, Box<Report>> {
        let client =
            Client::of(settings.api.as_ref()).map_err(|error| Box::new(Report::new(command).refused(&error)))?;
        Ok(Remote { command, client, runtime: asking(command)? })
    }

    /// Returns the service of these settings if it answers. Returns `None` if nothing listens and neither a flag nor a
    /// variable named the address.
    ///
    /// # Errors
    /// Something listens but does not answer as a service does. Nothing listens at an address that a flag or a variable
    /// named: the store of this machine may belong to another service.
    pub(super) fn find(command: &'static str, settings: &Settings) -> Result<Option<Self>, Box<Report>> {
        let client = match Client::of(settings.api.as_ref()) {
            Ok(client) => client,
            Err(error) if error.is_absence() => return Ok(None),
            Err(error) => return Err(Box::new(Report::new(command).refused(&error))),
        };
        let remote = Remote { command, client, runtime: asking(command)? };
        let named = settings.api.as_ref().is_some_and(|api| api.named);
        match remote.runtime.block_on(remote.client.get::<serde_json::Value>("/healthz")) {
            Ok(_) => Ok(Some(remote)),
            Err(error) if error.is_absence() && !named => Ok(None),
            Err(error) if error.is_absence() => Err(Box::new(remote.refused(&error).suggest(
                "start the service, or correct --api.http.address or ANABRANCH_API_HTTP_ADDRESS; if neither is set \
                 and no service runs, this command uses the store on this machine",
            ))),
            Err(error) => Err(remote.refused(&error)),
        }
    }

    /// Returns the URL of the service.
    pub(super) fn url(&self) -> String {
        self.client.url()
    }

    /// See [`Client::get`].
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Box<Report>> {
        self.run(self.client.get(path))
    }

    /// Like [`Remote::get`]; `None` if the service does not have the path.
    pub(super) fn get_if_known<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Box<Report>> {
        match self.runtime.block_on(self.client.get(path)) {
            Ok(answer) => Ok(Some(answer)),
            Err(ClientError::Refused(refusal)) if refusal.reason == codes::API_NO_SUCH_PATH.name() => Ok(None),
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// Like [`Remote::get`]; the inner error is the service's message if its state store is not available.
    pub(super) fn get_of_store<T: DeserializeOwned>(&self, path: &str) -> Result<Result<T, String>, Box<Report>> {
        match self.runtime.block_on(self.client.get(path)) {
            Ok(answer) => Ok(Ok(answer)),
            Err(ClientError::Refused(refusal)) if refusal.reason == codes::STORE_UNAVAILABLE.name() => {
                Ok(Err(refusal.message))
            }
            Err(error) => Err(self.refused(&error)),
        }
    }

    /// See [`Client::post`].
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Box<Report>> {
        self.run(self.client.post(path, body))
    }

    /// See [`Client::delete`].
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Box<Report>> {
        self.run(self.client.delete(path))
    }

    /// Runs a request to completion.
    pub(super) fn run<T>(&self, asking: impl Future<Output = Result<T, ClientError>>) -> Result<T, Box<Report>> {
        self.runtime.block_on(asking).map_err(|error| self.refused(&error))
    }

    /// Returns the client and the runtime, for concurrent requests and websockets.
    pub(super) fn parts(&self) -> (&Client, &Runtime) {
        (&self.client, &self.runtime)
    }

    fn refused(&self, error: &ClientError) -> Box<Report> {
        Box::new(Report::new(self.command).refused(error))
    }
}

fn asking(command: &'static str) -> Result<Runtime, Box<Report>> {
    runtime::start(&mut Builder::new_current_thread()).map_err(|error| {
        let message = format!("cannot start the runtime: {}", anabranch_process::files::system(&error));
        Box::new(Report::new(command).fail(Exit::Environment, codes::CLI_SYSTEM, message))
    })
}
