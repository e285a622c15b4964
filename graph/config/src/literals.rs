//! Template literals in a script, where `${` begins an expression in the language of the script.

/// The kind of token around a byte of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    Code,
    /// Text in quotes of this kind.
    Quoted(u8),
    Template,
    /// A comment up to the end of the line.
    Line,
    /// A comment up to its end mark.
    Block,
}

/// Scans a script from its beginning. Regular expressions are not recognized, since only a parser can distinguish them
/// from a division; quotes in one may cause wrong results.
pub(super) struct Literals<'t> {
    text: &'t [u8],
    at: usize,
    modes: Vec<TokenKind>,
}

impl<'t> Literals<'t> {
    pub(super) fn of(script: &'t str) -> Self {
        Literals { text: script.as_bytes(), at: 0, modes: vec![TokenKind::Code] }
    }

    /// Returns `true` if byte `at` is in the text of a template literal. Calls must have ascending `at`; all calls
    /// together are O(n).
    pub(super) fn holds(&mut self, at: usize) -> bool {
        while self.at < at {
            let rest = &self.text[self.at..];
            self.at += self.step(rest);
        }
        self.modes.last() == Some(&TokenKind::Template)
    }

    /// Consumes the token at the current place and returns its length.
    fn step(&mut self, rest: &[u8]) -> usize {
        let mode = self.modes.last().copied().unwrap_or(TokenKind::Code);
        match (mode, rest) {
            (TokenKind::Quoted(_) | TokenKind::Template, [b'\\', ..]) => return 2,
            (TokenKind::Code, [b'/', b'/', ..]) => self.modes.push(TokenKind::Line),
            (TokenKind::Code, [b'/', b'*', ..]) => {
                self.modes.push(TokenKind::Block);
                return 2;
            }
            (TokenKind::Code, [quote @ (b'\'' | b'"'), ..]) => self.modes.push(TokenKind::Quoted(*quote)),
            (TokenKind::Code, [b'`', ..]) => self.modes.push(TokenKind::Template),
            (TokenKind::Code, [b'{', ..]) => self.modes.push(TokenKind::Code),
            (TokenKind::Code, [b'}', ..]) if self.modes.len() > 1 => drop(self.modes.pop()),
            (TokenKind::Quoted(quote), [byte, ..]) if *byte == quote || *byte == b'\n' => drop(self.modes.pop()),
            (TokenKind::Template, [b'`', ..]) | (TokenKind::Line, [b'\n', ..]) => drop(self.modes.pop()),
            (TokenKind::Template, [b'$', b'{', ..]) => {
                self.modes.push(TokenKind::Code);
                return 2;
            }
            (TokenKind::Block, [b'*', b'/', ..]) => {
                self.modes.pop();
                return 2;
            }
            _ => {}
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::Literals;

    /// Which of the variables are in the text of a template literal.
    fn held(script: &str) -> Vec<bool> {
        let mut literals = Literals::of(script);
        script.match_indices("${").map(|(at, _)| literals.holds(at)).collect()
    }

    #[test]
    fn the_text_of_template_literals_is_told_from_the_rest() {
        for (script, expected) in [
            ("a = `${A}`", &[true][..]),
            ("a = '${A}' + \"${B}\" + ${C}", &[false, false, false]),
            ("a = `x \\` ${A}`; b = ${B}", &[true, false]),
            ("// `\na = ${A} /* ` */ + `${B}`", &[false, true]),
            ("a = `${ {b: `${C}`, c: \"}\"} } ${D}` + ${E}", &[true, true, true, false]),
            ("if (a) { b = '`'; c = ${A} } d = `${B}", &[false, true]),
            ("a = 'it\n`${A}`", &[true]),
            ("}} `${A}`", &[true]),
        ] {
            assert_eq!(held(script), expected, "{script}");
        }
    }
}
