//! Profiles of the shared credentials and config files.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use super::Environment;

/// Settings of one profile from both files; the credentials file takes precedence.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pub(super) name: String,
    settings: BTreeMap<String, String>,
}

impl Profile {
    /// Reads the profile `asked`, or the one in `AWS_PROFILE`, or `default`. Files and profiles that are not named
    /// explicitly may be missing.
    pub(super) async fn load(environment: &Environment, asked: Option<&str>) -> Result<Profile, String> {
        let named = asked.map(str::to_owned).or_else(|| environment.get("AWS_PROFILE"));
        let name = named.clone().unwrap_or_else(|| "default".to_owned());
        let mut profile = Profile { name: name.clone(), settings: BTreeMap::new() };
        let mut found = false;
        let files = [("AWS_CONFIG_FILE", "config", true), ("AWS_SHARED_CREDENTIALS_FILE", "credentials", false)];
        for (variable, file, prefixed) in files {
            let path = match environment.get(variable) {
                Some(path) => PathBuf::from(path),
                None => match environment.get("HOME") {
                    Some(home) => PathBuf::from(home).join(".aws").join(file),
                    None => continue,
                },
            };
            let text = match read(path.clone()).await {
                Ok(text) => text,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
            };
            let section = if prefixed && name != "default" { format!("profile {name}") } else { name.clone() };
            if let Some(settings) = section_of(&text, &section) {
                found = true;
                profile.settings.extend(settings);
            }
        }
        match (found, named) {
            (false, Some(name)) => Err(format!("the shared config and credentials files contain no profile {name}")),
            _ => Ok(profile),
        }
    }

    pub(super) fn get(&self, setting: &str) -> Option<&str> {
        self.settings.get(setting).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Maximum size of a file with credentials.
const LARGEST: u64 = 1 << 20;

/// Reads the text of a file on a blocking thread.
pub(super) async fn read(path: PathBuf) -> std::io::Result<String> {
    let reading = tokio::task::spawn_blocking(move || anabranch_ops_tls::read_regular_text(&path, LARGEST));
    reading.await.map_err(std::io::Error::other)?
}

/// Returns the settings of a section, without nested ones, which are indented.
fn section_of(text: &str, section: &str) -> Option<BTreeMap<String, String>> {
    let mut settings = None;
    let mut inside = false;
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = bare.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            inside = header.split_whitespace().eq(section.split_whitespace());
            if inside {
                settings.get_or_insert_with(BTreeMap::new);
            }
        } else if let (true, false, Some((name, value)), Some(settings)) =
            (inside, line.starts_with([' ', '\t']), bare.split_once('='), &mut settings)
        {
            let value = value.split(" #").next().unwrap_or_default().trim();
            settings.insert(name.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    settings
}
