//! Plans as drawings.

use std::fmt::Write as _;

use super::figure::{Arrow, Card, Figure, FigureText, Frame, Purpose, Role};
use super::layout::{Point, Rect, Size};
use super::typeface::Font;
use super::{Picture, PictureNode};
use anabranch_graph::plan::graph::Port;

/// Margin of the page.
const MARGIN: f64 = 28.0;
/// Minimum width of a drawing, so that the text below it fits.
const LEAST_WIDTH: f64 = 660.0;
/// Maximum width of the text.
const MOST_TEXT: f64 = 1100.0;
const FINE: f64 = 12.0;
const FINE_LEADING: f64 = 17.0;

/// Colours for light and dark mode. Plain rules, since some programs that display SVG do not support variables.
pub(super) const STYLE: &str = include_str!("svg/style.css");

/// Returns a drawing with its title above and its guarantees below.
pub(super) fn print(picture: &Picture<'_>) -> String {
    let figure = Figure::of(picture, Purpose::Print);
    let width = figure.size.width.max(LEAST_WIDTH);
    let mut head = Sheet::new(MARGIN, MARGIN + 18.0, width);
    head.line("plan-name", Font::Bold, 18.0, 24.0, picture.pipeline);
    head.line(
        "fine",
        Font::Regular,
        FINE,
        FINE_LEADING,
        &format!("{} · {}", picture.counted(), picture.limits.sentence()),
    );
    if let Some(totals) = &picture.measured {
        head.line("fine", Font::Regular, FINE, FINE_LEADING, &totals.sentence());
    }
    let top = head.y + 8.0;
    let mut foot = Sheet::new(MARGIN, top + figure.size.height + 40.0, width);
    foot.promises(picture);
    let size = Size { width: width + 2.0 * MARGIN, height: foot.y + MARGIN - FINE_LEADING };
    let mut out = String::new();
    let _ = writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
    open(&mut out, picture, size, "");
    let _ = writeln!(out, "<style>\n{STYLE}</style>");
    let Size { width: full, height } = size;
    let _ = writeln!(out, "<rect class=\"page\" width=\"{full:.1}\" height=\"{height:.1}\"/>");
    out.push_str(&head.out);
    drawing(&mut out, picture, &figure, Point { x: MARGIN + (width - figure.size.width) / 2.0, y: top });
    out.push_str(&foot.out);
    out.push_str("</svg>\n");
    out
}

/// Returns the drawing alone, for a page with its own style and texts.
pub(super) fn embedded(picture: &Picture<'_>, purpose: Purpose) -> String {
    let figure = Figure::of(picture, purpose);
    let size = Size { width: figure.size.width + 2.0 * MARGIN, height: figure.size.height + 2.0 * MARGIN };
    let mut out = String::new();
    open(&mut out, picture, size, " class=\"figure\"");
    drawing(&mut out, picture, &figure, Point { x: MARGIN, y: MARGIN });
    out.push_str("</svg>\n");
    out
}

fn open(out: &mut String, picture: &Picture<'_>, size: Size, more: &str) {
    let (width, height) = (size.width.ceil(), size.height.ceil());
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"group\"{more} aria-label=\"{}\">\n<title>",
        Escaped(&format!("{}: {} plan", picture.pipeline, picture.pass.as_str()))
    );
    let _ = writeln!(out, "{}</title>", Escaped(&format!("{}: {} plan", picture.pipeline, picture.pass.as_str())));
}

fn drawing(out: &mut String, picture: &Picture<'_>, figure: &Figure, at: Point) {
    let tip = format!("tip-{}", picture.pass.as_str());
    let _ = writeln!(
        out,
        "<defs><marker id=\"{tip}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\" markerUnits=\"userSpaceOnUse\"><path class=\"tip\" d=\"M0.5 0.8 L7.5 4 L0.5 7.2 z\"/></marker></defs>"
    );
    let _ = writeln!(out, "<g transform=\"translate({:.1} {:.1})\">", at.x, at.y);
    figure.frames.iter().for_each(|each| frame(out, each));
    figure.arrows.iter().for_each(|each| arrow(out, each, &tip));
    figure.cards.iter().for_each(|each| card(out, each, &picture.nodes[each.index]));
    figure.arrows.iter().for_each(|each| label(out, each));
    out.push_str("</g>\n");
}

fn frame(out: &mut String, frame: &Frame) {
    let Rect { x, y, width, height } = frame.rect;
    let _ = writeln!(
        out,
        "<g class=\"stage\" data-stage=\"{}\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\" rx=\"10\"/>",
        frame.id
    );
    text(out, &frame.title, x + 12.0, y + 17.0, "start");
    out.push_str("</g>\n");
}

fn card(out: &mut String, card: &Card, node: &PictureNode<'_>) {
    let Rect { x, y, width, height } = card.rect;
    let kind = node.kind.replace(' ', "-");
    let junction = node.plugin.is_none();
    let round = if junction { (height / 2.0).min(18.0) } else { 6.0 };
    let said = match node.plugin {
        Some(plugin) => format!("{}, {} {plugin}", node.id, node.kind),
        None => format!("{}, {}", node.id, node.kind),
    };
    let _ = writeln!(
        out,
        "<g class=\"node {kind}\" data-node=\"{}\" tabindex=\"0\" role=\"button\" aria-label=\"{}\">\
         <rect class=\"card\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round:.1}\"/>",
        card.index,
        Escaped(&said)
    );
    if !junction {
        let _ = writeln!(
            out,
            "<path class=\"mark\" d=\"M{:.1} {y:.1} h-1 a5 5 0 0 0 -5 5 v{:.1} a5 5 0 0 0 5 5 h1 z\"/>",
            x + 6.0,
            height - 10.0
        );
    }
    if let Some(cost) = node.measured {
        let _ = writeln!(
            out,
            "<rect class=\"share\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"3\"/>",
            x + 8.0,
            y + height - 6.0,
            (width - 16.0) * cost.share
        );
    }
    let mut baseline = y + 6.0;
    for line in &card.texts {
        baseline += line.role.leading();
        let (at, anchor) = if junction { (x + width / 2.0, "middle") } else { (x + 14.0, "start") };
        text(out, line, at, baseline - 2.0, anchor);
    }
    if card.fails {
        let _ = writeln!(
            out,
            "<circle class=\"fails\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>failed records go from here to the \
             dead-letter queue</title></circle>",
            x + width,
            y + height / 2.0
        );
    }
    out.push_str("</g>\n");
}

fn arrow(out: &mut String, arrow: &Arrow, tip: &str) {
    let Some((first, _)) = arrow.pieces.first() else { return };
    let mut path = format!("M{:.1} {:.1}", first.x, first.y);
    let mut pieces = arrow.pieces.iter().peekable();
    while let Some((above, below)) = pieces.next() {
        if below.y > above.y {
            let _ = write!(path, " V{:.1}", below.y);
        }
        if let Some((next, _)) = pieces.peek() {
            // Vertical at both ends, so that lines keep their order between two ranks.
            let middle = f64::midpoint(below.y, next.y);
            if (below.x - next.x).abs() < 0.05 {
                let _ = write!(path, " V{:.1}", next.y);
            } else {
                let _ =
                    write!(path, " C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}", below.x, next.x, next.x, next.y);
            }
        }
    }
    let class = if arrow.cut { "edge cut" } else { "edge" };
    let _ = writeln!(
        out,
        "<path class=\"{class}\" data-from=\"{}\" data-to=\"{}\" d=\"{path}\" marker-end=\"url(#{tip})\"/>",
        arrow.from, arrow.to
    );
}

fn label(out: &mut String, arrow: &Arrow) {
    let Some((rect @ Rect { x, y, width, height }, lines)) = &arrow.label else { return };
    if lines.is_empty() {
        return flow(out, arrow, *rect);
    }
    let class = match arrow.port {
        Port::Taken => "said taken",
        Port::Out | Port::Skipped | Port::Failed => "said",
    };
    let _ = writeln!(
        out,
        "<g class=\"{class}\"><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"6\"/>"
    );
    let mut baseline = y + 2.0;
    for line in lines {
        baseline += line.role.leading();
        text(out, line, x + width / 2.0, baseline - 2.0, "middle");
    }
    out.push_str("</g>\n");
}

/// Draws the area where a page shows the flow along a line.
fn flow(out: &mut String, arrow: &Arrow, Rect { x, y, width, height }: Rect) {
    let Arrow { from, to, .. } = arrow;
    let (at, baseline, size) = (x + width / 2.0, y + height / 2.0 + 4.0, Role::Live.size());
    let _ =
        write!(out, "<g class=\"flow{}\" data-from=\"{from}\" data-to=\"{to}\">", if arrow.cut { " cut" } else { "" });
    if arrow.cut {
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{baseline:.1}\" font-size=\"{size}\" text-anchor=\"middle\"></text>",
            height / 2.0
        );
    } else {
        // Next to the line, which is short.
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{baseline:.1}\" font-size=\"{size}\"></text>", at + 10.0);
    }
    out.push_str("</g>\n");
}

fn text(out: &mut String, text: &FigureText, x: f64, y: f64, anchor: &str) {
    let FigureText { role, text } = text;
    let (class, size) = (role.class(), Role::size(*role));
    let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\"{anchor}>{}</text>",
        Escaped(text)
    );
}

/// Text around the drawing, from top to bottom.
struct Sheet {
    x: f64,
    y: f64,
    width: f64,
    out: String,
}

impl Sheet {
    fn new(x: f64, y: f64, width: f64) -> Self {
        Sheet { x, y, width: width.min(MOST_TEXT), out: String::new() }
    }

    fn put(&mut self, class: &str, size: f64, x: f64, y: f64, text: &str) {
        let _ = writeln!(
            self.out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\">{}</text>",
            Escaped(text)
        );
    }

    fn line(&mut self, class: &str, face: Font, size: f64, leading: f64, text: &str) {
        for line in face.wrap(text, size, self.width) {
            self.put(class, size, self.x, self.y, &line);
            self.y += leading;
        }
    }

    /// Writes one row per path from a source to a destination, and one for failed records.
    fn promises(&mut self, picture: &Picture<'_>) {
        let gap = 20.0;
        let columns = [0.26, 0.40, 0.34].map(|share| (self.width - 2.0 * gap) * share);
        let starts = [self.x, self.x + columns[0] + gap, self.x + columns[0] + columns[1] + 2.0 * gap];
        for (start, title) in starts.iter().zip(["from → to", "delivery and order", "duplicates"]) {
            self.put("heading", FINE, *start, self.y, title);
        }
        self.rule();
        for promise in picture.promises() {
            let cells = [&promise.way, &promise.guarantee, &promise.duplicates];
            let mut lines = 1;
            for ((cell, start), (width, face)) in
                cells.into_iter().zip(starts).zip(columns.into_iter().zip([Font::Bold, Font::Regular, Font::Regular]))
            {
                let class = if face == Font::Bold { "strong" } else { "fine" };
                let wrapped = face.wrap(cell, FINE, width);
                for (i, line) in wrapped.iter().enumerate() {
                    self.put(class, FINE, start, self.y + i as f64 * FINE_LEADING, line);
                }
                lines = lines.max(wrapped.len());
            }
            self.y += (lines - 1) as f64 * FINE_LEADING;
            self.rule();
        }
    }

    fn rule(&mut self) {
        let _ =
            writeln!(self.out, "<path class=\"rule\" d=\"M{:.1} {:.1} h{:.1}\"/>", self.x, self.y + 7.0, self.width);
        self.y += 7.0 + FINE_LEADING;
    }
}

/// Escapes text for XML content or a quoted attribute. Characters that are invalid in XML are replaced.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => f.write_char(char::REPLACEMENT_CHARACTER),
            c if c.is_control() && c != '\n' && c != '\t' => f.write_char(char::REPLACEMENT_CHARACTER),
            c => f.write_char(c),
        })
    }
}
