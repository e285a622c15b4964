//! Date layouts in the notation of other languages, and templates with the same doubtful output for every record.

use std::ops::Range;

use anabranch_record::access::Access;
use anabranch_template::functions::{has_element, is_duration, unsupported_zone};
use anabranch_template::tree::Literal;
use anabranch_template::{DoubtKind, Template};

use super::Walk;
use super::call::Call;
use super::expression::ValueProperties;
use crate::codes;
use crate::flow::{Flow, Place};

/// Layout elements of other languages, longer ones first, with Go's elements. Letters inside words do not count.
const ELSEWHERE: [(&str, &str); 21] = [
    ("YYYY", "2006"),
    ("yyyy", "2006"),
    ("%Y", "2006"),
    ("%m", "01"),
    ("%d", "02"),
    ("%H", "15"),
    ("%M", "04"),
    ("%S", "05"),
    ("MMMM", "January"),
    ("MMM", "Jan"),
    ("MM", "01"),
    ("DD", "02"),
    ("dd", "02"),
    ("HH", "15"),
    ("hh", "03"),
    ("mm", "04"),
    ("ss", "05"),
    ("SSS", "000"),
    ("YY", "06"),
    ("yy", "06"),
    ("XXX", "Z07:00"),
];

impl Walk<'_> {
    /// Reports a layout with the same output for every time, or nearly so.
    pub(super) fn layout(&mut self, call: &Call<'_>) {
        let Call { name, values, .. } = *call;
        if !matches!(name, "date" | "dateInZone" | "date_in_zone" | "toDate" | "mustToDate") {
            return;
        }
        let Some(ValueProperties::Literal(Literal::Text(layout))) = values.first() else { return };
        let place = call.place(0);
        let meant = translated(layout);
        if meant.is_none() && has_element(layout) {
            return;
        }
        let message = format!("{layout:?} is not a layout: a layout shows how to write the time 2006-01-02 15:04:05");
        let hint = match &meant {
            Some(meant) => format!("write {meant:?}"),
            None => "write the parts of that time, for example \"2006-01-02\"".to_owned(),
        };
        let found = self.at(place.clone());
        self.flow.warn(codes::FLOW_SUSPECT, found, message, None, Some(hint));
        self.correct_literal(place, layout, meant);
    }

    /// Reports a zone that times cannot be converted to.
    pub(super) fn zone(&mut self, call: &Call<'_>) {
        let Call { name, values, certain, .. } = *call;
        let parameter = match name {
            "dateInZone" | "date_in_zone" => 2,
            "htmlDateInZone" => 1,
            _ => return,
        };
        let Some(ValueProperties::Literal(Literal::Text(zone))) = values.get(parameter) else { return };
        let Some(why) = unsupported_zone(zone) else { return };
        let place = call.place(parameter);
        let hint = "write \"UTC\", or an offset such as \"+02:00\"".to_owned();
        self.fails(codes::FLOW_WRONG_ARGUMENT, place, format!("every record fails here: {why}"), hint, certain);
    }

    /// Replaces a literal by what was meant, where it is written in the template and does not come through a variable.
    fn correct_literal(&mut self, place: Range<usize>, literal: &str, meant: Option<String>) {
        if let Some(meant) = meant
            && self.text(&place) == format!("{literal:?}")
        {
            self.correct(place, format!("{meant:?}"));
        }
    }

    /// Reports a duration with an unknown unit: the time stays unchanged, or the duration is 0.
    pub(super) fn length_of_time(&mut self, call: &Call<'_>) {
        let Call { name, values, certain, .. } = *call;
        let so = match name {
            "dateModify" | "date_modify" => "the time does not change",
            "mustDateModify" | "must_date_modify" => "",
            "durationRound" => "it counts as 0",
            _ => return,
        };
        let Some(ValueProperties::Literal(Literal::Text(length))) = values.first() else { return };
        if is_duration(length) {
            return;
        }
        let place = call.place(0);
        let meant = in_hours(length);
        let hint = match &meant {
            Some(meant) => format!("write {meant:?}"),
            None => {
                "write a number with its unit, for example \"-1h30m\"; the units are h, m, s, ms, us and ns".to_owned()
            }
        };
        let message = format!("{length:?} is not a duration");
        match so {
            "" => self.fails(
                codes::FLOW_WRONG_ARGUMENT,
                place.clone(),
                format!("every record fails here: {message}"),
                hint,
                certain,
            ),
            so => {
                let found = self.at(place.clone());
                self.flow.warn(codes::FLOW_SUSPECT, found, format!("{message}: {so}"), None, Some(hint));
            }
        }
        self.correct_literal(place, length, meant);
    }
}

/// Converts a duration such as `2 days` or `5 mins` to Go's notation; `None` if it is not one.
fn in_hours(length: &str) -> Option<String> {
    let (sign, rest) = match length.trim().split_at_checked(1)? {
        (sign @ ("+" | "-"), rest) => (sign, rest.trim_start()),
        _ => ("", length.trim()),
    };
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = rest.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let (factor, unit) = match unit.trim() {
        "d" | "D" | "day" | "days" => (24, "h"),
        "w" | "W" | "week" | "weeks" => (7 * 24, "h"),
        "h" | "H" | "hr" | "hrs" | "hour" | "hours" => (1, "h"),
        "min" | "mins" | "minute" | "minutes" => (1, "m"),
        "s" | "S" | "sec" | "secs" | "second" | "seconds" => (1, "s"),
        _ => return None,
    };
    let meant = format!("{sign}{}{unit}", number.checked_mul(factor)?);
    is_duration(&meant).then_some(meant)
}

/// Converts a layout of another language to Go's notation; `None` if it is not one.
fn translated(layout: &str) -> Option<String> {
    let is_foreign = ["YYYY", "yyyy", "%Y", "%H", "%m", "YY-", "YY/", "DD", "HH:", "hh:", ":mm", "-MM", "/MM"];
    if !is_foreign.iter().any(|part| layout.contains(part)) {
        return of_another_day(layout);
    }
    let mut meant = String::new();
    let mut rest = layout;
    while let Some(c) = rest.chars().next() {
        let known = ELSEWHERE.iter().find(|(part, _)| rest.starts_with(part));
        let (len, text) = known.map_or((c.len_utf8(), &rest[..c.len_utf8()]), |(part, go)| (part.len(), go));
        meant.push_str(text);
        rest = &rest[len..];
    }
    has_element(&meant).then_some(meant)
}

/// Converts a layout that is written as another example date: `2024-12-31 23:59`.
fn of_another_day(layout: &str) -> Option<String> {
    let shape: String = layout.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    if !shape.starts_with("9999-99-99") || layout.starts_with("2006") {
        return None;
    }
    let mut meant = String::from("2006-01-02");
    let (rest, of_rest) = (&layout[10..], &shape[10..]);
    let time = of_rest.starts_with([' ', 'T']).then(|| of_rest.get(1..)).flatten();
    let len = match time {
        Some(time) if time.starts_with("99:99:99") => 9,
        Some(time) if time.starts_with("99:99") => 6,
        _ => 0,
    };
    if len > 0 {
        meant.push_str(&rest[..1]);
        meant.push_str(&"15:04:05"[..len - 1]);
    }
    meant.push_str(match &rest[len..] {
        "Z" => "Z07:00",
        rest => rest,
    });
    Some(meant)
}

impl Flow {
    /// Reports doubtful results of a template that does not read the record: its output is the same for every record.
    pub(super) fn constant(&mut self, place: &Place, template: &Template) {
        if template.reads() != Access::NOTHING {
            return;
        }
        for doubt in template.doubts_briefly() {
            let place = place.at(doubt.at);
            // Formats are already checked against their values.
            if doubt.kind != DoubtKind::Format && !self.is_remarked(&place) {
                self.warn(codes::FLOW_SUSPECT, place, doubt.message, None, doubt.hint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{in_hours, translated};

    #[test]
    fn lengths_of_time_are_written_in_the_units_that_there_are() {
        for (length, meant) in [
            ("+1d", Some("+24h")),
            ("-2w", Some("-336h")),
            ("1 day", Some("24h")),
            ("90 min", Some("90m")),
            ("30 s", Some("30s")),
            ("1y", None),
            ("1d12h", None),
            ("", None),
            ("+", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(in_hours(length).as_deref(), meant, "{length}");
        }
    }

    #[test]
    fn layouts_of_other_languages_are_translated() {
        for (layout, meant) in [
            ("YYYY-MM-DD", "2006-01-02"),
            ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2006-01-02'T'15:04:05.000Z07:00"),
            ("%Y-%m-%d %H:%M:%S", "2006-01-02 15:04:05"),
            ("DD/MM/YY", "02/01/06"),
            ("HH:mm", "15:04"),
            ("2024-12-31", "2006-01-02"),
            ("2024-12-31T23:59:59Z", "2006-01-02T15:04:05Z07:00"),
            ("1999-01-01 00:00", "2006-01-02 15:04"),
        ] {
            assert_eq!(translated(layout).as_deref(), Some(meant), "{layout}");
        }
        for layout in ["2006-01-02", "02 Jan 2006, 15:04", "Monday", "summer", ""] {
            assert_eq!(translated(layout), None, "{layout}");
        }
    }
}
