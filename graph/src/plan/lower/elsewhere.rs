//! Plugin names of other tools.

/// Returns the plugin that corresponds to a plugin of another tool, and a note on its use.
pub(super) fn instead(role: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let name = name.rsplit(':').next().unwrap_or(name).split('@').next().unwrap_or(name).to_ascii_lowercase();
    let by_name = |table: &[(&[&str], &'static str, &'static str)]| {
        table.iter().find(|(names, ..)| names.contains(&name.as_str())).map(|(_, plugin, word)| (*plugin, *word))
    };
    match role {
        "processor" => by_name(&[
            (
                &["grok", "regex", "regexp", "dissect", "parse"],
                "custom.javascript",
                "with a regular expression in its `script`",
            ),
            (&["script", "js", "javascript", "lua", "mutate", "map"], "custom.javascript", "with its `script`"),
            (&["remap", "bloblang", "mapping"], "vrl", "with its `program`"),
            (&["set", "add", "insert", "replace", "add_fields"], "field.set", "with `field` and `value`"),
            (&["rename"], "field.rename", "with its `mapping`"),
            (&["remove", "delete", "exclude", "drop_fields", "remove_fields"], "field.exclude", "with its `fields`"),
            (&["convert", "cast"], "field.convert", "with `field` and `type`"),
            (
                &["drop", "discard", "where", "select"],
                "filter",
                "which drops the records for which its condition holds",
            ),
            (&["json", "json_decode", "parse_json", "decode"], "json.decode", "with its `field`"),
            (&["json_encode", "encode"], "json.encode", "with its `field`"),
            (&["explode", "flatten", "unnest", "fan_out"], "split", "with its `field`"),
            (&["http", "webhook", "enrich"], "webhook.http", "with its `request.url`"),
        ]),
        "destination" => by_name(&[
            (&["stdout", "console", "print", "logger"], "log", "which writes records to the log of the service"),
            (&["null", "devnull", "blackhole", "noop"], "drop", "which discards records and counts them"),
            (&["pg", "postgresql", "psql"], "postgres", "with its `url`"),
            (&["aws_s3", "minio", "bucket"], "s3", "with its `aws.bucket`"),
            (&["files", "local", "fs"], "file", "with its `path`"),
        ]),
        _ => by_name(&[
            (&["pg", "postgresql", "psql"], "postgres", "with its `url`"),
            (&["aws_s3", "minio", "bucket"], "s3", "with its `aws.bucket`"),
            (&["files", "tail", "local", "fs", "filelog"], "file", "with its `path`"),
            (&["random", "fake", "faker", "demo", "generate", "datagen"], "generator", "with its `format.options.*`"),
        ]),
    }
}
