//! The permission of the user to apply changes.

use crate::cli::{Context, Exit, Report};
use crate::codes;

/// Flags with which the user allows changes.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ApplyConsent {
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
    /// Apply the changes if they still have this hash.
    #[arg(long, value_name = "HASH", conflicts_with = "yes")]
    plan_hash: Option<String>,
    /// Only compare: exit with 4 if something would change.
    #[arg(long, conflicts_with_all = ["yes", "plan_hash"])]
    check: bool,
    /// With --yes: continue even if a source under a new id delivers everything again.
    #[arg(long, requires = "yes")]
    accept_rereads: bool,
}

/// The changes that the user decides on.
pub(in crate::cli) struct ProposedChanges<'a> {
    /// The plan as text.
    pub(in crate::cli) text: String,
    pub(in crate::cli) hash: &'a str,
    pub(in crate::cli) differs: bool,
    /// `true` if a source would deliver everything again.
    pub(in crate::cli) rereads: bool,
    /// Address of the service.
    pub(in crate::cli) to: String,
}

/// What to do with the changes.
pub(in crate::cli) enum Decision {
    /// Apply them. The text is what the report still has to show.
    Apply(String),
    /// End with this report.
    End(Box<Report>),
}

impl ApplyConsent {
    /// Decides on changes, and asks the user if need be. `report` makes a report that begins with a text.
    ///
    /// # Errors
    /// The plan is another one than that with the hash, or a source would deliver everything again.
    pub(in crate::cli) fn decide(
        &self,
        changes: ProposedChanges<'_>,
        context: &Context,
        report: impl Fn(String) -> Report,
    ) -> Result<Decision, Box<Report>> {
        let ProposedChanges { text, hash, differs, rereads, to } = changes;
        // Also with a hash: if its plan is applied already, there is nothing left to do.
        if !differs {
            return Ok(Decision::End(Box::new(report(text))));
        }
        if let Some(expected) = &self.plan_hash
            && expected != hash
        {
            let message = "the changes are not those of the plan with this hash";
            let report = report(text).fail(Exit::Invalid, codes::PIPELINES_PLAN_STALE, message);
            return Err(Box::new(report.suggest(format!("check the plan above, then use --plan-hash {hash}"))));
        }
        if self.check {
            return Ok(Decision::End(Box::new(report(text).found(Exit::Drift))));
        }
        if self.yes {
            if rereads && !self.accept_rereads {
                let message = "a source would read from its beginning and deliver everything again";
                let report = report(text).fail(Exit::Invalid, codes::PROVISIONING_REREADS, message);
                return Err(Box::new(report.suggest(
                    "copy the position first (`anabranch positions copy`), or add --accept-rereads to accept it",
                )));
            }
        } else if self.plan_hash.is_none() {
            // The user has just read the plan, so the report does not repeat it.
            return Ok(match context.confirm(&format!("{text}Apply it to {to}?")) {
                Some(true) => Decision::Apply(String::new()),
                Some(false) => Decision::End(Box::new(report("Nothing was changed.\n".to_owned()))),
                None => {
                    let yes = if rereads { "--yes --accept-rereads" } else { "--yes" };
                    let advice = format!("Nothing was changed. To apply the plan, add --plan-hash {hash} or {yes}.\n");
                    Decision::End(Box::new(report(text).notes(advice).found(Exit::Drift)))
                }
            });
        }
        Ok(Decision::Apply(text))
    }
}
