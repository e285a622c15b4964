//! Pipeline templates: `anabranch pipelines init --template`.

use anabranch_record::near::did_you_mean;

/// A pipeline to start from, with explanations in its comments. The first line describes it.
pub(super) struct Template {
    /// Name, and id of its pipeline.
    pub(super) name: &'static str,
    text: &'static str,
}

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        &[$(Template {
            name: $name,
            text: include_str!(concat!("../templates/gallery/", $name, ".yaml")),
        }),*]
    };
}

/// All templates, the simplest first.
pub(super) const TEMPLATES: &[Template] = templates![
    "generator-log",
    "generator-file",
    "json-lines",
    "access-log",
    "csv-dead-letters",
    "branching",
    "change-feed",
    "webhook-enrichment",
    "file-to-postgres",
    "api-to-postgres",
    "webhooks-to-postgres",
    "events-to-s3",
    "s3-to-postgres",
    "kafka-to-kafka",
    "kafka-to-postgres",
    "postgres-to-file",
    "postgres-to-postgres",
    "postgres-to-kafka",
    "postgres-to-kafka-debezium",
    "documents-to-vectors",
    "postgres-to-vectors",
];

/// Returns the template with this name, or a similar name.
pub(super) fn find(name: &str) -> Result<&'static Template, Option<&'static str>> {
    let found = TEMPLATES.iter().find(|template| template.name == name);
    found.ok_or_else(|| did_you_mean(name, TEMPLATES.iter().map(|template| template.name)))
}

impl Template {
    /// Returns the description in one line.
    pub(super) fn summary(&self) -> &'static str {
        self.text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default()
    }

    /// Returns the text of the file, with this id for its pipeline.
    pub(super) fn file(&self, id: &str) -> String {
        self.text.replacen(&format!("  - id: {}\n", self.name), &format!("  - id: {id}\n"), 1)
    }

    /// Returns the variables that must be set before the pipeline can start, in the order of the file.
    pub(super) fn variables(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for rest in self.text.split("${").skip(1) {
            let Some((name, _)) = rest.split_once('}') else { continue };
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if is_name && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Returns `true` if the pipeline splits records, which must be enabled.
    pub(super) fn splits(&self) -> bool {
        self.text.contains(SPLITS)
    }
}

/// The flag that enables processors that split records.
pub(super) const SPLITS: &str = "--preview.pipeline-arch-v2";

#[cfg(test)]
mod tests {
    use anabranch_config::{Variables, load};
    use anabranch_graph::plan::{CompileOptions, compile};
    use anabranch_plugin::diagnostic::Files;

    use super::*;
    use crate::cli::registry;

    /// Only what a template says that it needs.
    struct Named(Vec<&'static str>);

    impl Variables for Named {
        fn variable(&self, name: &str) -> Option<String> {
            let value = match name {
                "SOURCE_POSTGRES_URL" => "postgresql://user@localhost/database",
                "POSTGRES_URL" => "postgresql://user@localhost/other",
                "S3_BUCKET" => "bucket",
                "KAFKA_SERVERS" => "localhost:9092",
                _ => "http://localhost",
            };
            self.0.contains(&name).then(|| value.to_owned())
        }
        fn file(&self, _: &str) -> Result<String, String> {
            Err("no files".into())
        }
    }

    #[test]
    #[cfg(all(
        feature = "ai",
        feature = "http",
        feature = "js",
        feature = "kafka",
        feature = "postgres",
        feature = "s3"
    ))]
    fn every_template_can_be_started_with_what_it_says_it_needs() {
        let registry = registry();
        for template in TEMPLATES {
            let mut files = Files::new();
            files.add(template.name, template.file("mine"));
            let loaded = load(&files, &Named(template.variables()));
            let mut findings = loaded.diagnostics;
            let options = CompileOptions { split: template.splits(), ..CompileOptions::default() };
            for config in &loaded.pipelines {
                findings.extend(compile(config, &registry, &options).map_or_else(|wrong| wrong, |good| good.warnings));
            }
            let found: Vec<_> = findings.iter().map(|finding| &finding.message).collect();
            assert!(found.is_empty(), "{}: {found:?}", template.name);
            let ids: Vec<_> = loaded.pipelines.iter().map(|pipeline| pipeline.id.value.as_str()).collect();
            assert_eq!(ids, ["mine"], "{}", template.name);
        }
    }

    #[test]
    fn templates_say_what_they_are_and_what_they_need() {
        for template in TEMPLATES {
            assert!(template.summary().ends_with('.'), "{}", template.name);
            let comment = template.text.split("version:").next().unwrap_or_default();
            for variable in template.variables() {
                assert!(comment.contains(variable), "{} does not say that it needs {variable}", template.name);
            }
            assert!(template.text.contains(&format!("  - id: {}\n", template.name)));
        }
    }

    #[test]
    fn every_file_of_the_gallery_is_a_template() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cli/templates/gallery");
        let count = std::fs::read_dir(directory).unwrap().count();
        assert_eq!(count, TEMPLATES.len());
    }
}
