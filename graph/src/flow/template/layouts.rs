//! Layouts of dates in the notation of other languages, and templates that give every record the same doubtful text.

use std::ops::Range;

use super::Walk;
use super::expression::{Known, bytes};
use crate::flow::{Flow, Place};
use crate::operator::Access;
use crate::template::functions::has_element;
use crate::template::tree::{Literal, Operand};
use crate::template::{DoubtKind, Template};

/// Parts of layouts elsewhere, longer ones first, and what Go has for them. Letters that stand in words are none.
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
    /// A layout that is the same text for every time, or nearly so.
    pub(super) fn layout(&mut self, name: &str, args: &[Operand], values: &[Known], at: &Range<usize>) {
        if !matches!(name, "date" | "dateInZone" | "date_in_zone" | "toDate" | "mustToDate") {
            return;
        }
        let Some(Known::Literal(Literal::Text(layout))) = values.first() else { return };
        let place = args.first().map_or_else(|| at.clone(), bytes);
        let meant = translated(layout);
        if meant.is_none() && has_element(layout) {
            return;
        }
        let message = format!("{layout:?} is not a layout: layouts write the time 2006-01-02 15:04:05 as it is meant");
        let hint = match &meant {
            Some(meant) => format!("write {meant:?}"),
            None => "write the parts of that time, as \"2006-01-02\"".to_owned(),
        };
        let found = self.at(place.clone());
        self.flow.warn("flow.suspect", found, message, None, Some(hint));
        if let Some(meant) = meant
            && self.text(&place) == format!("{:?}", layout.as_str())
        {
            self.correct(place, format!("{meant:?}"));
        }
    }
}

/// The layout in Go's notation, where it is one of another language.
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

/// The layout for which another day stands as an example: `2024-12-31 23:59`.
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
    /// A template that reads nothing of the record gives the same text for every record: what is doubtful in it is known.
    pub(super) fn constant(&mut self, place: &Place, template: &Template) {
        if template.reads() != Access::NOTHING {
            return;
        }
        for doubt in template.doubts_briefly() {
            let place = place.at(doubt.at);
            // Formats are compared with their values already.
            if doubt.kind != DoubtKind::Format && !self.is_remarked(&place) {
                self.warn("flow.suspect", place, doubt.message, None, doubt.hint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::translated;

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
