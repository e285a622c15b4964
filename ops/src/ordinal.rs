//! Texts of piece and copy numbers in metadata.

use anabranch_record::text::Str;

/// Returns `n` as decimal text. Small numbers do not allocate.
pub(crate) fn ordinal(n: usize) -> Str {
    const SMALL: [&str; 32] = [
        "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19",
        "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
    ];
    SMALL.get(n).map_or_else(|| Str::from(itoa::Buffer::new().format(n)), |text| Str::from_static(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_decimal() {
        for n in (0..40).chain([1_000_000]) {
            assert_eq!(ordinal(n).as_str(), n.to_string());
        }
    }
}
