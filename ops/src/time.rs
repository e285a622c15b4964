//! Processors that convert between texts and times.

pub mod format;
mod layout;
pub mod parse;

use anabranch_plugin::diagnostic::Diagnostics;
use anabranch_plugin::parameters::Argument;
use anabranch_record::near::did_you_mean;
use anabranch_record::reference::{Reference, Target};
use anabranch_record::text::Str;
use chrono_tz::{TZ_VARIANTS, Tz};

/// Returns the time zone of a setting.
fn zone_of(setting: &Argument<Str>) -> Result<Tz, Diagnostics> {
    setting.trim().parse().map_err(|_| {
        let finding = setting.invalid(format_args!("there is no time zone {:?}", setting.trim()));
        match did_you_mean(setting.trim(), TZ_VARIANTS.iter().map(|zone| zone.name())) {
            Some(near) => finding.with_hint(format!("did you mean {near}?")).into(),
            None => finding.with_hint("name a zone of the IANA database, such as Europe/Berlin, or UTC").into(),
        }
    })
}

/// Returns the field of a setting, which must not be the whole key or one whole side of the payload.
fn value_of(setting: &Argument<Reference>) -> Result<Reference, Diagnostics> {
    let field = setting.one_side()?;
    match field.target() {
        Target::Data(_) => Err(setting
            .invalid(format_args!("{field} is raw data or a map and not a single value"))
            .with_hint(format!("name a field of it, such as {field}.at"))
            .into()),
        _ => Ok(field),
    }
}
