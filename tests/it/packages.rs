//! What packages install: the unit, the configuration, the scripts of the package, the image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::process::{Process, Workspace, skip};

fn packaging(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)).unwrap()
}

fn is_missing(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        skip(&format!("{program} is not installed: what it would check was not checked"));
    }
    missing
}

/// The settings that a start of the installed service would have, by name.
fn effective(workspace: &Workspace) -> BTreeMap<String, String> {
    let output = workspace.run(&["config", "--json", "--config.path=anabranch.yaml"]).expect_code(0);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let settings = report["result"]["settings"].as_object().unwrap_or_else(|| panic!("{report}"));
    settings.iter().map(|(name, it)| (name.clone(), it["value"].as_str().unwrap_or_default().to_owned())).collect()
}

#[test]
fn the_unit_is_one() {
    if is_missing("systemd-analyze") {
        return;
    }
    let unit = packaging("anabranch.service");
    let workspace = Workspace::new();
    // The program is looked for.
    let installed = unit.replace("/usr/bin/anabranch", env!("CARGO_BIN_EXE_anabranch"));
    assert_ne!(unit, installed);
    let path = workspace.write("anabranch.service", installed);
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(&path);
    let output = Process::spawn(&mut verify).finish().expect_code(0);
    assert!(!output.both().contains("anabranch.service:"), "{}", output.both());
    // How much it is shut in: 0 is most, 10 is least.
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold=30", "--no-pager"]).arg(&path);
    let output = Process::spawn(&mut security).finish();
    assert_eq!(output.code(), Some(0), "{}", output.both());
}

#[test]
fn what_the_unit_starts_is_right() {
    let unit = packaging("anabranch.service");
    let value = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("the unit has no {name}"))
    };
    let mut workspace = Workspace::new();
    workspace.write("anabranch.yaml", packaging("anabranch.yaml"));
    for assignment in value("Environment").split(' ').filter(|it| it.starts_with("ANABRANCH_")) {
        let (name, value) = assignment.split_once('=').unwrap();
        workspace.env(name, value);
    }
    let settings = effective(&workspace);
    assert_eq!(settings["log.format"], "json");
    assert_eq!(settings["db.path"], format!("/var/lib/{}/anabranch.db", value("StateDirectory")));
    assert_eq!(settings["pipelines.path"], "/etc/anabranch/pipelines");
    let seconds: u64 = settings["shutdown.timeout"].strip_suffix('s').unwrap().parse().unwrap();
    assert!(value("TimeoutStopSec").parse::<u64>().unwrap() > seconds, "it is killed before it is drained");
    assert!(value("ExecStart").ends_with("run --config.path=/etc/anabranch/anabranch.yaml"));
    // Where what is given is not valid, starting again is of no use; that code is this one.
    let refused = workspace.run(&["run", "--config.path=anabranch.yaml", "--log.level=loud"]);
    assert_eq!(refused.code().map(|code| code.to_string()).as_deref(), Some(value("RestartPreventExitStatus")));
    workspace.write("example.yaml", packaging("example.yaml"));
    let validated = workspace.run(&["pipelines", "validate", "example.yaml"]).expect_code(0).both();
    assert!(validated.contains("0 errors, 0 warnings"), "{validated}");
}

#[test]
fn the_package_takes_what_is_there() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let (_, package) = manifest.split_once("[package.metadata.deb]").unwrap();
    let quoted: Vec<&str> = package.split("\n[").next().unwrap().split('"').skip(1).step_by(2).collect();
    let taken = |start: &str| quoted.iter().filter(|path| path.starts_with(start)).copied().collect::<Vec<_>>();
    for path in ["packaging", "README", "llms", "docs", "examples"].iter().flat_map(|start| taken(start)) {
        let (directory, _) = path.split_once('*').unwrap_or((path, ""));
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).exists(), "{path}");
    }
    // An upgrade does not overwrite files that a user may have changed.
    for path in taken("/etc/") {
        let name = path.rsplit('/').next().unwrap();
        assert!(quoted.contains(&format!("packaging/{name}").as_str()), "{path} is not installed");
    }
    for script in ["debian/postinst", "debian/postrm"] {
        let mut shell = Command::new("sh");
        shell.args(["-n", "-c", &packaging(script)]);
        Process::spawn(&mut shell).finish().expect_code(0);
    }
}

/// An upgrade leaves what somebody has removed or closed since the installation, and does not fail.
#[test]
fn an_upgrade_changes_nothing_of_what_somebody_changed() {
    let workspace = Workspace::new();
    let installed = workspace.path("etc");
    let script = packaging("debian/postinst").replace("/etc/anabranch", installed.to_str().unwrap());
    let configure = |before: &str| {
        // Nobody is made a user, and no file is given away, by a test.
        let stand_ins = "getent() { :; }; adduser() { exit 9; }; chown() { :; };";
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{stand_ins} {script}"), "postinst", "configure", before]);
        Process::spawn(&mut shell).finish().expect_code(0);
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (main, example) = (installed.join("anabranch.yaml"), installed.join("pipelines/example.yaml"));
    for path in [&main, &example] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    configure("");
    assert_eq!([&installed, &main, &example].map(|path| mode(path) & 0o007), [0; 3], "pipelines may hold credentials");
    fs::remove_file(&main).unwrap();
    fs::set_permissions(&example, fs::Permissions::from_mode(0o664)).unwrap();
    configure("0.0.9-1");
    assert_eq!((main.exists(), mode(&example)), (false, 0o664));
}

#[test]
fn the_image_starts_what_is_there() {
    let image = packaging("Dockerfile");
    let mut workspace = Workspace::new();
    workspace.write("anabranch.yaml", packaging("anabranch.yaml"));
    let environment = image.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap();
    for assignment in environment.split(' ') {
        let (name, value) = assignment.split_once('=').unwrap();
        workspace.env(name, value);
    }
    // Reachable from outside, it wants a token.
    let refused = workspace.run(&["run", "--config.path=anabranch.yaml", "--db.type=inmemory"]).expect_code(2);
    assert!(refused.both().contains("ANABRANCH_API_HTTP_TOKEN"), "{}", refused.both());
    workspace.env("ANABRANCH_API_HTTP_TOKEN", "of-the-test");
    let settings = effective(&workspace);
    let (_, port) = settings["api.http.address"].rsplit_once(':').unwrap();
    assert!(image.contains(&format!("EXPOSE {port}\n")), "{port}");
    let state = image.lines().find_map(|line| line.strip_prefix("VOLUME ")).unwrap();
    assert!(settings["db.path"].starts_with(state), "{settings:?}");
    for copied in image.lines().filter_map(|line| line.strip_prefix("COPY packaging/")) {
        packaging(copied.split(' ').next().unwrap());
    }
    let compiled = image.split_whitespace().filter(|word| word.starts_with("--profile")).count();
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    assert!(compiled == 1 && manifest.contains("[profile.dist]"));
}

/// Names of the variables with settings in a text.
fn variables(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ANABRANCH_")).map(str::to_owned).collect()
}

/// Neither is run here: there is no Kubernetes and no Docker.
#[test]
fn the_chart_and_the_compose_file_set_what_there_is() {
    let values: serde_json::Value = serde_saphyr::from_str(&packaging("helm/values.yaml")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&packaging("helm/values.schema.json")).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = schema.iter_errors(&values).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for wrong in [serde_json::json!({ "replicas": 0 }), serde_json::json!({ "replica": 3 })] {
        let mut changed = values.clone();
        changed.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert!(!schema.is_valid(&changed), "{changed}");
    }
    let compose = packaging("compose/compose.yaml");
    let parsed: serde_json::Value = serde_saphyr::from_str(&compose).unwrap();
    assert_eq!(parsed["services"].as_object().map(serde_json::Map::len), Some(4));
    let deployment = packaging("helm/templates/nodes.yaml");
    let workspace = Workspace::new();
    for text in [&compose, &deployment] {
        let mut command = workspace.command(["config", "--json"]);
        for name in variables(text) {
            let value = match name.as_str() {
                "ANABRANCH_CLUSTER_SLOTS" => "8",
                "ANABRANCH_CLUSTER_ADDRESS" => "http://10.0.0.1:8080",
                "ANABRANCH_API_HTTP_ADDRESS" => "0.0.0.0:8080",
                "ANABRANCH_CLUSTER_URL" => "postgresql://server/x",
                _ => "given",
            };
            command.env(name, value);
        }
        let output = Process::spawn(&mut command).finish().expect_code(0);
        assert_eq!(output.stderr, "", "no variable is unknown or without effect");
        let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let from_environment = report["result"]["settings"].as_object().unwrap().values();
        let count = from_environment.filter(|setting| setting["source"] == "environment").count();
        assert_eq!(count, variables(text).len(), "{}", output.stdout);
    }
    // A drain may take as long as it may.
    let settings = effective(&workspace_of("pipelines.path: /etc/anabranch/pipelines\n"));
    assert_eq!(settings["shutdown.timeout"], "25s");
    assert!(values["terminationGracePeriodSeconds"].as_u64() > Some(25) && compose.contains("stop_grace_period: 60s"));
}

fn workspace_of(settings: &str) -> Workspace {
    let workspace = Workspace::new();
    workspace.write("anabranch.yaml", settings);
    workspace
}
