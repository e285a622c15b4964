//! The inputs of a node of a cluster: the files of plugins on its machine, and the variables that pipelines name. All nodes
//! should have the same inputs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anabranch_config::{Variables, value_of};
use anabranch_process::files::{read_text, system, visible_files};
use anabranch_record::text::hexadecimal;
use anabranch_settings::{Credential, Settings};
use anabranch_store::{StoredPipeline, StoredSetting};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::variables::MAX_VALUE_FILE;

/// The places of the inputs of a node.
#[derive(Clone, Debug)]
pub struct InputPlaces {
    /// Directories of plugins, each with its name in answers.
    directories: Vec<(&'static str, PathBuf)>,
    /// Key of the hashes of values; without it, values are not hashed.
    key: Option<Credential>,
}

/// The inputs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeInputs {
    /// SHA-256 of each file of a plugin, by its name such as `processors/mask.wasm`. A file that cannot be read has the
    /// reason in place of the hash.
    pub plugins: BTreeMap<String, String>,
    /// Hash of the empty text under the token of the nodes; `None` without such a token. Nodes with the same token have the
    /// same hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The variables that pipelines name, such as `PASSWORD` or `file:/run/secrets/password`, each with `unset`, or with a
    /// hash of its value (HMAC-SHA-256 with the token of the nodes as its key). Without such a token: `set`.
    pub variables: BTreeMap<String, String>,
}

/// The state of a variable without a value.
const UNSET: &str = "unset";
/// The state of a variable with a value, if there is no key.
const SET: &str = "set";

impl InputPlaces {
    /// Returns the places that the settings name.
    pub fn of(settings: &Settings) -> InputPlaces {
        InputPlaces {
            directories: vec![
                ("connectors", settings.connectors.path.clone()),
                ("processors", settings.processors.path.clone()),
            ],
            key: settings.cluster.as_ref().and_then(|cluster| cluster.token.clone()),
        }
    }

    /// Reads the files of plugins, and the variables of these pipelines. Blocks: reads each file once.
    pub fn read(&self, pipelines: &[StoredPipeline]) -> NodeInputs {
        let mut plugins = BTreeMap::new();
        for (name, directory) in &self.directories {
            for path in visible_files(directory) {
                let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let digest = digest(&path).unwrap_or_else(|error| system(&error));
                plugins.insert(format!("{name}/{file}"), digest);
            }
        }
        let variables = NamedVariables::default();
        for setting in pipelines.iter().flat_map(settings) {
            let _ = value_of(&setting.written, &variables);
        }
        let key = self.key.as_ref().map(Credential::now);
        let state = |(name, value): (String, Option<String>)| {
            let state = match (value, &key) {
                (None, _) => UNSET.to_owned(),
                (Some(_), None) => SET.to_owned(),
                (Some(value), Some(key)) => keyed(key.as_bytes(), &name, &value),
            };
            (name, state)
        };
        let token = key.as_ref().map(|key| keyed(key.as_bytes(), "", ""));
        NodeInputs { plugins, token, variables: variables.found.into_inner().into_iter().map(state).collect() }
    }
}

/// Returns all settings of a pipeline.
fn settings(pipeline: &StoredPipeline) -> impl Iterator<Item = &StoredSetting> {
    let of_connectors = pipeline.connectors.iter().flat_map(|connector| {
        connector.settings.iter().chain(connector.processors.iter().flat_map(|processor| &processor.settings))
    });
    let of_processors = pipeline.processors.iter().flat_map(|processor| &processor.settings);
    pipeline.dead_letter.settings.iter().chain(of_connectors).chain(of_processors)
}

fn digest(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut part) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok(hexadecimal(&hash.finalize())),
            length => hash.update(&part[..length]),
        }
    }
}

/// Returns the hash of a value under a key. Contains the name: equal values of two variables have different hashes.
fn keyed(key: &[u8], name: &str, value: &str) -> String {
    // HMAC takes keys of every length.
    let Ok(mut hash) = Hmac::<Sha256>::new_from_slice(key) else { return SET.to_owned() };
    hash.update(&(name.len() as u64).to_be_bytes());
    hash.update(name.as_bytes());
    hash.update(value.as_bytes());
    hexadecimal(&hash.finalize().into_bytes())
}

/// The variables that a text names, with their values here.
#[derive(Default)]
struct NamedVariables {
    found: RefCell<BTreeMap<String, Option<String>>>,
}

impl NamedVariables {
    /// Returns a value in any case, so that the variables after an unset one are found too.
    fn find(&self, name: String, value: Option<String>) -> String {
        let shown = value.clone().unwrap_or_default();
        self.found.borrow_mut().insert(name, value);
        shown
    }
}

impl Variables for NamedVariables {
    fn variable(&self, name: &str) -> Option<String> {
        Some(self.find(name.to_owned(), std::env::var(name).ok()))
    }

    fn file(&self, path: &str) -> Result<String, String> {
        Ok(self.find(format!("file:{path}"), read_text(Path::new(path), MAX_VALUE_FILE).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipeline with these texts as settings of its parts.
    fn pipeline(written: &[&'static str]) -> StoredPipeline {
        let mut pipeline = StoredPipeline::new("p".into(), "p".into(), "".into());
        pipeline.dead_letter.settings =
            written.iter().map(|written| StoredSetting { name: "a".into(), written: (*written).into() }).collect();
        pipeline
    }

    fn places(directory: &Path, key: Option<&str>) -> InputPlaces {
        InputPlaces {
            directories: vec![("processors", directory.to_owned())],
            key: key.map(|key| Credential::from(key.to_owned())),
        }
    }

    #[test]
    fn variables_have_hashes_that_depend_on_key_name_and_value() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (a, b, c) = (file("a", "secret"), file("b", "secret"), directory.path().join("c").display().to_string());
        let text = format!("${{file:{a}}}:${{file:{c}}}@${{file:{b}}} ${{ANABRANCH_NEVER_SET:-x}}");
        let pipelines = [pipeline(&[Box::leak(text.into_boxed_str())])];
        let read = |key| places(&directory.path().join("none"), key).read(&pipelines).variables;
        let first = read(Some("key"));
        let of = |variables: &BTreeMap<String, String>, name: &str| variables[name].clone();
        let (a, b, c) = (format!("file:{a}"), format!("file:{b}"), format!("file:{c}"));
        assert_eq!((of(&first, &c), of(&first, "ANABRANCH_NEVER_SET")), (UNSET.to_owned(), UNSET.to_owned()));
        assert_eq!(of(&first, &a).len(), 64);
        assert_ne!(of(&first, &a), of(&first, &b), "equal values of two variables");
        assert_ne!(of(&first, &a), of(&read(Some("other")), &a), "another key");
        assert_eq!(read(Some("key")), first);
        std::fs::write(a.strip_prefix("file:").unwrap(), "other").unwrap();
        assert_ne!(of(&read(Some("key")), &a), of(&first, &a), "another value");
        let without = read(None);
        assert_eq!((of(&without, &a), of(&without, &c)), (SET.to_owned(), UNSET.to_owned()));
    }

    #[test]
    fn files_of_plugins_have_the_hash_of_their_content() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("mask.wasm"), "abc").unwrap();
        std::fs::write(directory.path().join(".hidden"), "abc").unwrap();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        let read = places(directory.path(), None).read(&[]);
        // The example of FIPS 180-4.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(read.plugins, BTreeMap::from([("processors/mask.wasm".to_owned(), hash.to_owned())]));
    }
}
