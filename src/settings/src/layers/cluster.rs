//! Settings of a node of a cluster.

use anabranch_plugin::diagnostic::Diagnostic;
use anabranch_plugin::state::Slots;

use super::Checking;
use crate::codes;
use crate::listener::{UNSENDABLE, is_sendable};
use crate::resolved::Source;
use crate::settings::{ClusterSettings, PostgresDatabase};

impl Checking<'_> {
    /// Checks the settings of the cluster, and that no other setting names another store.
    pub(super) fn check_cluster(&mut self) {
        let entry = self.entry("cluster.url");
        if self.text("cluster.url").is_empty() {
            for name in ["cluster.node", "cluster.address", "cluster.labels", "cluster.token"] {
                if !self.text(name).is_empty() {
                    let message = format!("{name} has no effect: cluster.url is not set");
                    let hint = Some("set cluster.url, or remove this setting".to_owned());
                    self.report(self.entry(name), Diagnostic::warning(codes::SERVICE_NO_EFFECT, message), hint);
                }
            }
            return;
        }
        let refuse = |what: String| Diagnostic::error(codes::SERVICE_INVALID_VALUE, what);
        if !cfg!(feature = "postgres") {
            let what = "cluster.url: this program was built without PostgreSQL (feature `postgres`)".to_owned();
            self.report(entry, refuse(what), None);
        }
        let address = self.text("cluster.address");
        if !address.is_empty() && !is_base_url(address) {
            let what = format!("cluster.address: {address:?} is not the URL of a node");
            let hint = "write a URL without a path, for example https://node-1:8080".to_owned();
            self.report(self.entry("cluster.address"), refuse(what), Some(hint));
        } else if !address.is_empty() && !self.bool("api.enabled") {
            let message = "cluster.address has no effect: api.enabled is false".to_owned();
            let hint = Some("enable the API, or remove this setting".to_owned());
            self.report(self.entry("cluster.address"), Diagnostic::warning(codes::SERVICE_NO_EFFECT, message), hint);
        }
        if self.int("cluster.slots") > i64::from(Slots::MOST) {
            let what = format!("cluster.slots must be at most {}", Slots::MOST);
            self.report(self.entry("cluster.slots"), refuse(what), None);
        }
        if !is_sendable(self.text("cluster.token")) {
            let what = format!("cluster.token: the token contains {UNSENDABLE}");
            self.report(self.entry("cluster.token"), refuse(what), None);
        }
        let contradicts = [
            ("db.type", self.text("db.type") != "postgres"),
            ("db.path", true),
            ("db.postgres.connection-string", self.text("db.postgres.connection-string") != self.text("cluster.url")),
        ];
        for (name, differs) in contradicts {
            let entry = self.entry(name);
            let is_given = entry.source != Source::Default && !self.text(name).is_empty();
            if is_given && differs {
                let what = format!("{name} contradicts cluster.url, which is the store of a node of a cluster");
                self.report(entry, refuse(what), Some(format!("remove {name}, or cluster.url")));
            }
        }
    }

    /// Returns the store that the nodes of the cluster share.
    pub(super) fn cluster(&self) -> Option<ClusterSettings> {
        let is_given = !self.text("cluster.url").is_empty();
        is_given.then(|| ClusterSettings {
            database: PostgresDatabase {
                connection: self.credential("cluster.url"),
                table: self.text("db.postgres.table").to_owned(),
            },
            node: Some(self.text("cluster.node").to_owned()).filter(|name| !name.is_empty()),
            address: Some(self.text("cluster.address").trim_end_matches('/').to_owned())
                .filter(|address| !address.is_empty() && self.bool("api.enabled")),
            labels: self.list("cluster.labels"),
            slots: u32::try_from(self.int("cluster.slots")).unwrap_or(1),
            token: Some(self.credential("cluster.token")).filter(|token| !token.at_start().is_empty()),
        })
    }
}

/// Returns `true` if a text is the URL of a server without a path.
fn is_base_url(text: &str) -> bool {
    let Ok(url) = text.parse::<http::Uri>() else { return false };
    let has_scheme = matches!(url.scheme_str(), Some("http" | "https"));
    has_scheme && url.host().is_some_and(|host| !host.is_empty()) && url.path() == "/" && url.query().is_none()
}
