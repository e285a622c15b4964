//! Discovers connectors: runs every executable file of a directory and asks for its specification.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_ops_program::log::ProgramOwner;
use anabranch_plugin::registry::StandaloneConnector;
use anabranch_record::text::{Str, hexadecimal};
use bytes::Bytes;
use futures::StreamExt as _;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::Settings;
use crate::call::{CallError, Client};
use crate::farewell::DeletedConnectors;
use crate::handshake::Handshake;
use crate::process::{self, ProcessIdentity};
use crate::protocol::Protocol;
use crate::session::{Plugin, random, shut_down};
use crate::specification::{PluginRole, roles};
use crate::wire;
use crate::{destination, source};

/// Time limit for a file's specification.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of files that run at the same time.
const AT_ONCE: usize = 4;

/// Result of the discovery.
#[derive(Default)]
pub struct Discovered {
    /// Usable connectors; versions of the same name are in ascending order.
    pub connectors: Vec<StandaloneConnector>,
    /// Unusable files, with the reason.
    pub refused: Vec<(PathBuf, String)>,
}

/// A file with its specification.
struct SpecifiedFile {
    file: PathBuf,
    specification: wire::Specification,
}

/// Searches the directory of connectors. Starts each file that is not cached and waits for it. Blocks for as long as
/// the slowest file takes, at most ten seconds each.
pub fn load(settings: &Arc<Settings>) -> Discovered {
    let mut found = Discovered::default();
    let files = match candidates(&settings.directory) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return found,
        Err(error) => {
            found.refused.push((settings.directory.clone(), format!("it cannot be listed: {error}")));
            return found;
        }
    };
    let mut named = Vec::new();
    for (file, answer) in ask_all(&files, settings) {
        match answer {
            Ok(specification) if specification.name.trim().is_empty() => {
                found.refused.push((file, "it has no name".to_owned()));
            }
            Ok(specification) => named.push(SpecifiedFile { file, specification }),
            Err(reason) => found.refused.push((file, reason)),
        }
    }
    let mut by_identity: BTreeMap<(String, String), Vec<SpecifiedFile>> = BTreeMap::new();
    for named in named {
        let plain = named.specification.version.trim().trim_start_matches('v').to_owned();
        by_identity.entry((named.specification.name.trim().to_owned(), plain)).or_default().push(named);
    }
    let mut usable = Vec::new();
    for ((name, version), mut files) in by_identity {
        if files.len() == 1 {
            usable.extend(files.pop().map(|named| (name, version, named)));
            continue;
        }
        let paths: Vec<PathBuf> = files.into_iter().map(|named| named.file).collect();
        for path in &paths {
            let others: Vec<String> =
                paths.iter().filter(|other| *other != path).map(|other| other.display().to_string()).collect();
            let reason = format!("{name} {version} is also in {}: neither is used", others.join(", "));
            found.refused.push((path.clone(), reason));
        }
    }
    usable.sort_by_key(|(name, version, _)| {
        // Invalid versions sort before valid ones.
        (name.clone(), semver::Version::parse(version).ok(), version.clone())
    });
    for (_, _, named) in usable {
        let file = named.file.clone();
        match connector(named, settings) {
            Some(connector) => found.connectors.push(connector),
            None => found.refused.push((file, "it is neither a source nor a destination".to_owned())),
        }
    }
    found.refused.sort();
    found
}

fn connector(named: SpecifiedFile, settings: &Arc<Settings>) -> Option<StandaloneConnector> {
    let SpecifiedFile { file, specification } = named;
    let (source, destination) = roles(&specification);
    let name = Str::from(specification.name.trim());
    let plugin = Arc::new(Plugin { file, name, settings: settings.clone() });
    let connector = StandaloneConnector {
        source: source.map(|PluginRole { specification, silenced }| {
            Arc::new(source::ConnectorSource { plugin: plugin.clone(), specification, silenced }) as _
        }),
        destination: destination.map(|PluginRole { specification, silenced }| {
            Arc::new(destination::ConnectorDestination { plugin: plugin.clone(), specification, silenced }) as _
        }),
        farewell: Some(Arc::new(DeletedConnectors(plugin))),
    };
    connector.specification().is_some().then_some(connector)
}

/// A file that may be a connector, or the reason why it is not.
type Candidate = (PathBuf, Result<(), String>);

/// Returns the executable files in name order, and programs without execute permission.
fn candidates(directory: &Path) -> std::io::Result<Vec<Candidate>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        // Follow links.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        if is_hidden || !metadata.is_file() {
            continue;
        }
        // The file is executed in another directory, so the path must be absolute.
        let path = fs::canonicalize(directory)?.join(path.file_name().unwrap_or_default());
        if metadata.permissions().mode() & 0o111 != 0 {
            files.push((path, Ok(())));
        } else if is_program(&path) {
            files.push((path, Err("it is not executable: run chmod +x on it".to_owned())));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

fn is_program(path: &Path) -> bool {
    let mut head = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && (head == *b"\x7fELF" || is_script(&head))
}

fn is_script(content: &[u8]) -> bool {
    content.starts_with(b"#!")
}

type Answer = (PathBuf, Result<wire::Specification, String>);

/// Asks all files, on a thread with its own runtime, because the caller may be on one already.
fn ask_all(files: &[Candidate], settings: &Arc<Settings>) -> Vec<Answer> {
    let ask = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let reason = format!("it cannot be started: {error}");
                return files.iter().map(|(file, _)| (file.clone(), Err(reason.clone()))).collect();
            }
        };
        let answers = futures::stream::iter(files.iter().cloned())
            .map(|(file, candidate)| async move {
                let answer = match candidate {
                    Ok(()) => known_or_asked(&file, settings).await,
                    Err(reason) => Err(reason),
                };
                (file, answer)
            })
            .buffered(AT_ONCE)
            .collect();
        runtime.block_on(answers)
    };
    std::thread::scope(|scope| scope.spawn(ask).join().unwrap_or_default())
}

async fn known_or_asked(file: &Path, settings: &Settings) -> Result<wire::Specification, String> {
    let known = settings.cache.as_deref().and_then(|cache| Some(cache.join(format!("{}.spec", hash(file)?))));
    if let Some(specification) = known.as_deref().and_then(recall) {
        return Ok(specification);
    }
    let specification = ask(file, settings).await?;
    if let Some(known) = known {
        // Without the cache, the file is started again.
        let _ = keep(&known, &specification);
    }
    Ok(specification)
}

/// Returns the hash of a file's content; `None` for scripts, whose behaviour depends on other files.
fn hash(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut sum = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    let mut first = true;
    loop {
        let read = match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        if std::mem::take(&mut first) && is_script(&piece[..read]) {
            return None;
        }
        sum.update(&piece[..read]);
    }
    Some(hexadecimal(&sum.finalize()))
}

fn recall(path: &Path) -> Option<wire::Specification> {
    let specification = wire::Specification::decode(Bytes::from(fs::read(path).ok()?)).ok()?;
    (!specification.name.is_empty()).then_some(specification)
}

fn keep(path: &Path, specification: &wire::Specification) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let file = tempfile::NamedTempFile::new_in(directory)?;
    fs::write(file.path(), specification.encode_to_vec())?;
    file.persist(path)?;
    Ok(())
}

async fn ask(file: &Path, settings: &Settings) -> Result<wire::Specification, String> {
    let patience = settings.patience.min(PATIENCE);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let identity = ProcessIdentity {
        owner: ProgramOwner::task("load-specifications"),
        plugin: Str::from(name.into_owned()),
        // The plugin makes no requests at this point.
        token: random().map_err(|error| error.to_string())?,
        utilities: "127.0.0.1:1".to_owned(),
    };
    let started = process::start(settings, file, &identity, patience).await;
    let (process, Handshake { protocol, address }) = started.map_err(|error| format!("it {error}"))?;
    let asked = async {
        let client = Client::connect(address, patience).await?;
        let specification = specify(&client, protocol, patience).await;
        shut_down(&client, &process).await;
        specification
    };
    let asked: Result<_, CallError> = asked.await;
    asked.map_err(|error| format!("it does not return its specification: {error}{}", process.last_words()))
}

async fn specify(client: &Client, protocol: Protocol, patience: Duration) -> Result<wire::Specification, CallError> {
    let message = client.unary(&protocol.specify(), Vec::new(), patience).await?;
    protocol.read_specification(message).map_err(|error| CallError::Refused(error.to_string()))
}
