//! Estimates of text width that hold for any font.

/// Widths of the characters from space to `~` in a wide bold sans-serif font, in thousandths of the font size. Common
/// fonts are not wider, so text fits into the measured space.
const WIDTHS: [u16; 95] = [
    348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696, 696, 696, 696, 696,
    696, 696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995,
    837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716,
    678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712,
    365, 712, 838,
];

/// Font of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Font {
    /// For names.
    Bold,
    /// For descriptions.
    Regular,
    /// For conditions and record shapes.
    Mono,
}

impl Font {
    /// Returns the width of a text in pixels. An estimate that is too large rather than too small.
    pub(super) fn width(self, text: &str, size: f64) -> f64 {
        text.chars().map(|c| self.advance(c)).sum::<f64>() * size
    }

    /// Returns the width of a character relative to the font size.
    fn advance(self, c: char) -> f64 {
        let ascii = (u32::from(c) as usize).checked_sub(32).and_then(|at| WIDTHS.get(at));
        match (c, ascii) {
            // Hangul, kana, Chinese characters and pictographs.
            ('\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{ffdc}' | '\u{10000}'.., _) => 1.4,
            (_, None) => 1.0,
            (_, Some(_)) if self == Font::Mono => 0.61,
            (_, Some(width)) if self == Font::Bold => f64::from(*width) / 1000.0,
            (_, Some(width)) => f64::from(*width) / 1000.0 * 0.94,
        }
    }

    /// Wraps a text to lines no wider than `most`. Words that are wider are broken.
    pub(super) fn wrap(self, text: &str, size: f64, most: f64) -> Vec<String> {
        let mut lines = Vec::new();
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && self.width(&line, size) + self.width(" ", size) + self.width(word, size) > most {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            let mut filled = self.width(&line, size);
            for c in word.chars() {
                let width = self.advance(c) * size;
                if filled + width > most && !line.is_empty() {
                    lines.push(std::mem::take(&mut line));
                    filled = 0.0;
                }
                line.push(c);
                filled += width;
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_more_room() {
        assert!(Font::Bold.width("W", 10.0) > Font::Bold.width("i", 10.0));
        assert!(Font::Regular.width("漢字", 10.0) >= 20.0);
        assert_eq!(Font::Mono.width("ab", 10.0), Font::Mono.width("iW", 10.0));
    }

    #[test]
    fn wrapped_lines_keep_their_words_and_their_width() {
        let text = "at least once, in the order of each source partition; averyverylongwordwithoutanyspace";
        let lines = Font::Regular.wrap(text, 12.0, 120.0);
        assert!(lines.len() > 3);
        assert!(lines.iter().all(|line| Font::Regular.width(line, 12.0) <= 120.0), "{lines:?}");
        let squeezed = |text: &str| text.replace(' ', "");
        assert_eq!(squeezed(&lines.concat()), squeezed(text));
    }
}
