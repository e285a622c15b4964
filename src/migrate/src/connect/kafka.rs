//! The side of a pipeline that is a Kafka topic.

use regex::Regex;

use super::draft::Draft;
use super::shape::{Shape, TOPIC, Topic};
use crate::document::Part;
use crate::expression::{action, metadata};

/// Returns the source of a sink connector.
pub(super) fn source(draft: &mut Draft<'_>) -> Part {
    let mut part = Part::new("topics", "kafka");
    client(draft, &mut part, "consumer");
    match (draft.take("topics"), draft.take("topics.regex")) {
        (Some(topics), pattern) => {
            let topics = draft.text("topics", &topics);
            part.set("topics", topics);
            draft.carried("topics", "topics.topics");
            if pattern.is_some() {
                draft.blocked(
                    "topics.regex",
                    "Kafka Connect refuses topics and topics.regex together: keep one of them",
                );
            }
        }
        (None, Some(pattern)) => {
            let is_valid = is_rust_pattern(&pattern);
            let text = draft.text("topics.regex", &pattern);
            part.set("topicPattern", text);
            match is_valid {
                true => draft.carried("topics.regex", "topics.topicPattern"),
                false => {
                    draft.blocked("topics.regex", "the pattern uses syntax of Java that is not supported: rewrite it");
                }
            }
        }
        (None, None) => {
            let unknown = draft.unknown("KAFKA_TOPICS", "names of the topics to read, separated by commas");
            part.set("topics", unknown);
            draft.blocked("topics", "the connector names no topics");
        }
    }
    let group = draft.take("consumer.override.group.id");
    match &group {
        Some(_) => draft.carried("consumer.override.group.id", "topics.groupID"),
        None => draft.changed(
            "name",
            "topics.groupID",
            "the pipeline continues at the offsets that the connector committed: delete the connector before you start the pipeline",
        ),
    }
    let group = group.unwrap_or_else(|| format!("connect-{}", draft.name()));
    let group = draft.text("consumer.override.group.id", &group);
    part.set("groupID", group);
    // Kafka Connect reads topics without a committed offset from their beginning, unlike other consumers.
    let reset = draft.take("consumer.override.auto.offset.reset");
    if reset.is_some() {
        draft.carried("consumer.override.auto.offset.reset", "topics.readFromBeginning");
    }
    part.set("readFromBeginning", if reset.as_deref() == Some("latest") { "false" } else { "true" });
    if let Some(level) = draft.take("consumer.override.isolation.level") {
        part.set("isolationLevel", level);
        draft.carried("consumer.override.isolation.level", "topics.isolationLevel");
    } else {
        part.set(
            "isolationLevel",
            draft.of_worker("consumer.isolation.level").unwrap_or_else(|| "read_uncommitted".into()),
        );
    }
    leave_out_overrides(draft, "consumer");
    part
}

/// Returns the destination of a source connector.
pub(super) fn destination(draft: &mut Draft<'_>, shape: &Shape) -> Part {
    let mut part = Part::new("topic", "kafka");
    client(draft, &mut part, "producer");
    match &shape.topic {
        Topic::InMetadata => part.set("topic", action(&metadata(TOPIC))),
        Topic::Template(template) => part.set("topic", template.as_str()),
    }
    if let Some(compression) = draft.take("producer.override.compression.type") {
        part.set("compression", compression);
        draft.carried("producer.override.compression.type", "topic.compression");
    }
    let created = draft.take_prefixed("topic.creation.");
    for (name, value) in created {
        let setting = format!("topic.creation.{name}");
        match name.as_str() {
            "default.partitions" | "default.replication.factor" => {
                let to = if name.ends_with("partitions") { "createTopics.partitions" } else { "createTopics.replicas" };
                // -1 is the default of the brokers, which is 0 here.
                part.set(to, if value.trim() == "-1" { "0" } else { value.trim() });
                draft.carried(&setting, &format!("topic.{to}"));
            }
            _ => {
                draft
                    .left_out(&setting, "create these topics before the pipeline starts, or set createTopics.config.*");
            }
        }
    }
    leave_out_overrides(draft, "producer");
    part
}

fn leave_out_overrides(draft: &mut Draft<'_>, client: &str) {
    let prefix = format!("{client}.override.");
    for name in draft.take_prefixed(&prefix).into_keys() {
        draft.left_out(&format!("{prefix}{name}"), "this setting of the Java client has no counterpart");
    }
}

/// Returns `true` if the pattern means the same here as in Java.
pub(super) fn is_rust_pattern(pattern: &str) -> bool {
    // Possessive quantifiers, look-around and back references are refused or read as something else.
    let is_java =
        ["*+", "++", "?+", "}+", "\\Q", "\\G", "\\R", "\\X", "\\h", "&&["].iter().any(|part| pattern.contains(part));
    !is_java && pattern.len() <= 4096 && Regex::new(pattern).is_ok()
}

/// Sets the addresses and the login of a client. Settings of the connector (`consumer.override.*`) come before those of
/// the worker for the client (`consumer.*`) and those for all (`*`).
pub(super) fn client(draft: &mut Draft<'_>, part: &mut Part, client: &str) {
    let mut security = Security { client, draft };
    let servers = security.take("bootstrap.servers");
    let servers = match servers {
        Some((setting, value)) => security.draft.text(&setting, &value),
        None => {
            security.draft.unknown("KAFKA_SERVERS", "addresses of the brokers, such as broker-1:9092,broker-2:9092")
        }
    };
    part.set("servers", servers);
    let mut login = false;
    if let Some((setting, protocol)) = security.take("security.protocol") {
        let protocol = protocol.to_ascii_uppercase();
        login = protocol.starts_with("SASL");
        match protocol.as_str() {
            "PLAINTEXT" | "SASL_PLAINTEXT" => {}
            "SSL" | "SASL_SSL" => part.set("tls.enabled", "true"),
            _ => security.draft.blocked(&setting, "this protocol is not known"),
        }
    }
    let mechanism = security.take("sasl.mechanism");
    let jaas = security.take("sasl.jaas.config");
    if login {
        security.login(part, mechanism, jaas);
    }
    for name in ["ssl.truststore.location", "ssl.keystore.location"] {
        if let Some((setting, _)) = security.take(name) {
            let to = if name.contains("trust") { "caCert" } else { "clientCert and clientKey" };
            let note =
                format!("the `kafka` plugin reads PEM files: export the certificates with keytool, and set {to}");
            security.draft.blocked(&setting, &note);
        }
    }
    for name in [
        "ssl.truststore.password",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.keystore.type",
    ] {
        if let Some((setting, _)) = security.take(name) {
            security.draft.left_out(&setting, "PEM files do not need it");
        }
    }
}

struct Security<'s, 'a> {
    client: &'s str,
    draft: &'s mut Draft<'a>,
}

impl Security<'_, '_> {
    /// Returns a setting of the client, with its name in the report.
    fn take(&mut self, name: &str) -> Option<(String, String)> {
        let own = format!("{}.override.{name}", self.client);
        if let Some(value) = self.draft.take(&own) {
            self.draft.carried(&own, "the connection to Kafka");
            return Some((own, value));
        }
        let of_client = self.draft.of_worker(&format!("{}.{name}", self.client));
        let value = of_client.or_else(|| self.draft.of_worker(name))?;
        Some((format!("worker: {name}"), value))
    }

    fn login(&mut self, part: &mut Part, mechanism: Option<(String, String)>, jaas: Option<(String, String)>) {
        match mechanism {
            Some((_, mechanism)) if ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].contains(&mechanism.as_str()) => {
                part.set("saslMechanism", mechanism);
            }
            Some((setting, _)) => {
                self.draft.blocked(
                    &setting,
                    "user and password log in with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; for OAUTHBEARER, set \
                     saslMechanism and oauth.*; Kerberos is not supported",
                );
                return;
            }
            // The default of the Java client is Kerberos.
            None => {
                self.draft.blocked("sasl.mechanism", "the mechanism of the login is not set: set saslMechanism");
                return;
            }
        }
        let (setting, jaas) = jaas.unwrap_or_default();
        // The clients of the workers share a login; a connector may have its own.
        let is_own = setting.contains(".override.");
        let id = if is_own { format!("{}_", self.draft.id()) } else { String::new() };
        match part_of_jaas(&jaas, "username") {
            Some(user) => {
                let user = self.draft.text(&setting, &user);
                part.set("saslUsername", user);
            }
            None => {
                let name = format!("{id}KAFKA_SASL_USERNAME");
                let user = self.draft.unknown(&name, "the user name for the login to Kafka");
                part.set("saslUsername", user);
            }
        }
        let password = part_of_jaas(&jaas, "password").unwrap_or_default();
        // References to providers stay what they are; a literal password becomes a variable.
        let password = match password.starts_with("${") {
            true => self.draft.text(&setting, &password),
            false => self.draft.unknown(&format!("{id}KAFKA_SASL_PASSWORD"), "the password for the login to Kafka"),
        };
        part.set("saslPassword", password);
    }
}

/// Returns a quoted value of a JAAS configuration: `... required username="u" password="p";`.
fn part_of_jaas(jaas: &str, name: &str) -> Option<String> {
    let (_, rest) = jaas.split_once(&format!("{name}="))?;
    let rest = rest.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut value = String::new();
    let mut characters = rest[1..].chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => value.extend(characters.next()),
            c if c == quote => return Some(value),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_read_from_their_jaas_text() {
        let jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"a\" password='b\\'c';";
        assert_eq!(part_of_jaas(jaas, "username").as_deref(), Some("a"));
        assert_eq!(part_of_jaas(jaas, "password").as_deref(), Some("b'c"));
        for broken in ["", "username=", "username=a", "username=\"a", "username=\"a\\"] {
            assert_eq!(part_of_jaas(broken, "username"), None, "{broken}");
        }
    }

    #[test]
    fn patterns_of_java_are_refused() {
        assert!(is_rust_pattern("shop\\.(orders|items)"));
        for java in ["(?=a)b", "a*+", "\\1", "(", "\\Qa.b\\E"] {
            assert!(!is_rust_pattern(java), "{java}");
        }
    }
}
