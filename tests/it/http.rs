//! Records in requests and answers of HTTP: the sources `http` and `http.poll`, and the destination `http`.

pub mod client;
mod poll;
mod receive;
mod send;

use crate::process::Workspace;

#[test]
fn the_examples_of_the_page_are_valid() {
    let page = include_str!("../../docs/http-connectors.md");
    let mut workspace = Workspace::new();
    for secret in ["GITHUB_SECRET", "CLIENT_SECRET", "SEARCH_TOKEN"] {
        workspace.env(secret, "a-secret-of-an-example");
    }
    let examples = page.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let written =
        examples.enumerate().map(|(number, example)| workspace.write(&format!("pipelines/{number}.yaml"), example));
    assert_eq!(written.count(), 3);
    let output = workspace.run(&["pipelines", "validate", "--strict"]).expect_code(0);
    assert!(output.both().contains("3 files, 3 pipelines"), "{}", output.both());
}
