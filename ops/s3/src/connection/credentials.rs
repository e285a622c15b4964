//! Credentials that are not in the settings: from environment variables, shared files, the container or the machine.
//!
//! The places and their order are those of the AWS SDKs ("standardized credential providers"), without those that need
//! another service (web identity, single sign-on, assumed roles). For the latter, an error message says that they are
//! not supported.

mod metadata_service;
mod profile;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use anabranch_record::text::Str;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};

use metadata_service::Temporary;
use profile::Profile;

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Environment variables.
#[derive(Clone)]
pub(super) struct Environment(Arc<Lookup>);

impl Environment {
    /// Returns the environment of this process.
    pub(super) fn of_process() -> Self {
        Environment(Arc::new(|name| std::env::var(name).ok()))
    }

    /// Returns the value of a variable, unless it is blank.
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }
}

/// Searches for credentials in one place after the other.
#[derive(Clone)]
pub(super) struct Chain {
    environment: Environment,
    profile: Option<Str>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl Chain {
    pub(super) fn new(environment: Environment, profile: Option<Str>) -> Self {
        Chain { environment, profile }
    }

    /// Returns the region from the environment or the profile.
    pub(super) async fn region(&self) -> Option<String> {
        let named = || ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| self.environment.get(name));
        match named() {
            Some(region) => Some(region),
            None => self.load_profile().await.ok().and_then(|profile| profile.get("region").map(str::to_owned)),
        }
    }

    async fn load_profile(&self) -> Result<Profile, CredentialsError> {
        Profile::load(&self.environment, self.profile.as_deref()).await.map_err(CredentialsError::invalid_configuration)
    }

    async fn find(&self) -> Result<Credentials, CredentialsError> {
        // A profile in the settings takes precedence over the environment.
        if self.profile.is_none()
            && let (Some(id), Some(secret)) =
                (self.environment.get("AWS_ACCESS_KEY_ID"), self.environment.get("AWS_SECRET_ACCESS_KEY"))
        {
            let token = self.environment.get("AWS_SESSION_TOKEN");
            return Ok(Credentials::new(id, secret, token, None, "environment"));
        }
        let profile = self.load_profile().await?;
        if let (Some(id), Some(secret)) = (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
            let token = profile.get("aws_session_token").map(str::to_owned);
            return Ok(Credentials::new(id, secret, token, None, "profile"));
        }
        if let Some(setting) = ["role_arn", "sso_session", "sso_start_url", "credential_process"]
            .into_iter()
            .find(|setting| profile.get(setting).is_some())
        {
            return Err(unsupported(&format!("profile {} uses {setting}", profile.name)));
        }
        if self.environment.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() {
            return Err(unsupported("AWS_WEB_IDENTITY_TOKEN_FILE is set"));
        }
        match metadata_service::of_container(&self.environment).await {
            Some(found) => return found.map(|keys| of_service(keys, "container")).map_err(provider_error),
            None if self
                .environment
                .get("AWS_EC2_METADATA_DISABLED")
                .is_some_and(|v| v.eq_ignore_ascii_case("true")) => {}
            None => match metadata_service::of_machine(&self.environment).await {
                Ok(keys) => return Ok(of_service(keys, "machine")),
                Err(error) => tracing::debug!(%error, "this machine has no credentials"),
            },
        }
        Err(CredentialsError::not_loaded(
            "there are no credentials: set objstore.access_key_id and objstore.secret_access_key, or provide them \
             in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in a profile in ~/.aws, or by the container or the \
             machine",
        ))
    }
}

fn unsupported(what: &str) -> CredentialsError {
    CredentialsError::invalid_configuration(format!(
        "{what}, which is not supported: set objstore.access_key_id and objstore.secret_access_key, or export \
         temporary keys"
    ))
}

fn provider_error(error: std::io::Error) -> CredentialsError {
    CredentialsError::provider_error(error)
}

fn of_service(keys: Temporary, provider: &'static str) -> Credentials {
    let expiry = keys.expiry().map(SystemTime::from);
    Credentials::new(keys.access_key_id, keys.secret_access_key, keys.token, expiry, provider)
}

impl ProvideCredentials for Chain {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.find())
    }
}

#[cfg(test)]
mod tests;
