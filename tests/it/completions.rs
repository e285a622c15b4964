//! Completions, as a shell asks for them.

use std::process::Command;

use crate::api::end;
use crate::process::{Workspace, file_to_file};

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.write("in.txt", "one\n");
    workspace.write("pipelines/orders.yaml", file_to_file("orders", ""));
    workspace.write("pipelines/outages.yaml", file_to_file("outages", ""));
    workspace.write("pipelines/broken.yaml", "pipelines: [\n");
    workspace
}

/// Returns bash's completions of a line, in the directory of the workspace, with the address of a service, if one runs.
fn offered(workspace: &Workspace, line: &str, service: &str) -> Vec<String> {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c"]).arg(
        r#"source <("$PROGRAM" completions bash)
        read -ra COMP_WORDS <<< "$LINE"
        [[ $LINE == *' ' ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
        COMP_TYPE=9
        _clap_complete_anabranch anabranch "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#,
    );
    bash.current_dir(workspace.root())
        .env("ANABRANCH_API_HTTP_ADDRESS", service)
        .env("PROGRAM", env!("CARGO_BIN_EXE_anabranch"))
        .env("LINE", line);
    let output = bash.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{line}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    printed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_commands_settings_pipelines_and_plugins() {
    let workspace = workspace();
    let first = |line: &str| offered(&workspace, line, "127.0.0.1:1");
    let commands = first("anabranch pipelines de");
    assert!(["describe", "delete", "dev"].iter().all(|word| commands.contains(&(*word).to_owned())), "{commands:?}");
    assert!(first("anabranch run --db.ty").contains(&"--db.type".to_owned()));
    assert_eq!(first("anabranch pipelines describe ")[..2], ["orders", "outages"], "before flags");
    assert_eq!(first("anabranch dlq list or"), ["orders"]);
    assert!(first("anabranch pipelines plan o").contains(&"outages".to_owned()));
    assert!(first("anabranch pipelines plan in").contains(&"in.txt".to_owned()), "a file");
    assert_eq!(first("anabranch processors describe field.re"), ["field.rename"]);
    assert_eq!(first("anabranch pipelines init --source gen"), ["generator"]);
    assert_eq!(first("anabranch dlq list unknown"), Vec::<String>::new());
}

/// Those that were made through the API are in no file.
#[test]
fn a_running_service_is_asked_for_its_pipelines() {
    let workspace = workspace();
    let mut service = workspace.start(&["run"]);
    let address = service.address();
    let made = crate::api::ask(
        address,
        "POST",
        "/v1/pipelines",
        "Content-Type: application/json\r\n",
        r#"{"config": {"name": "made-by-hand"}}"#,
    );
    assert!((200..300).contains(&made.status), "{}", made.body);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let offered = offered(&workspace, &format!("anabranch pipelines stop {}", &id[..4]), &address.to_string());
    assert!(offered.contains(&id), "{offered:?}");
    end(service);
}

/// Every shell loads its script at each start.
#[test]
fn scripts_are_short() {
    let workspace = Workspace::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = workspace.run(&["completions", shell]).expect_code(0).stdout;
        assert!(script.contains("anabranch") && script.len() < 4096, "{shell}: {} bytes", script.len());
    }
}
