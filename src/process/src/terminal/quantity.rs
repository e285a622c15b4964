//! Quantities in a few characters: numbers, times and bytes.

/// Formats a number in a few characters: `999`, `12.3k`, `4.0M`.
pub fn short(n: f64) -> String {
    match n {
        n if n < 10.0 && n.fract() != 0.0 => format!("{n:.1}"),
        n if n < 1e3 => format!("{n:.0}"),
        n if n < 1e6 => format!("{:.1}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

/// Formats a time in one unit: `0.3 s`, `12 s`, `5 min`, `3 h`, `4 d`.
pub fn age(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// Formats a number of bytes in one unit: `900 B`, `1.2 GiB`.
pub fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().map(|(power, unit)| (bytes / f64::from(power).exp2(), unit)).find(|(n, _)| *n >= 1.0);
    unit.map_or_else(|| format!("{bytes} B"), |(number, unit)| format!("{number:.1} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 1023, 1 << 10, 3 << 29, 5 << 40].map(size), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB", "5.0 TiB"]);
        assert_eq!([0.0, 1.5, 999.4, 12_345.0, 4_000_000.0].map(short), ["0", "1.5", "999", "12.3k", "4.0M"]);
    }
}
