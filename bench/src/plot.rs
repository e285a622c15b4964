//! Plots as SVG: bars and logarithmic curves.

use std::fmt::Write as _;

const INK: &str = "#1f2933";
const FAINT: &str = "#cbd2d9";
const BLUE: &str = "#2f6fab";

/// A curve with logarithmic axes.
pub(crate) struct Curve<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws curves side by side. The dashed line of each curve grows linearly from its first point.
pub(crate) fn curves(curves: &[Curve<'_>]) -> String {
    const WIDTH: f64 = 400.0;
    const HEIGHT: f64 = 300.0;
    let mut svg = open(WIDTH * curves.len() as f64, HEIGHT);
    for (i, curve) in curves.iter().enumerate() {
        draw(&mut svg, curve, i as f64 * WIDTH, WIDTH, HEIGHT);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, curve: &Curve<'_>, left: f64, width: f64, height: f64) {
    let (x0, x1, y0, y1) = (left + 62.0, left + width - 18.0, height - 46.0, 36.0);
    let decades = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        (low, if high > low { high } else { low + 1.0 })
    };
    let (from_x, to_x) = decades(&mut curve.points.iter().map(|p| p.0));
    let (from_y, to_y) = decades(&mut curve.points.iter().map(|p| p.1));
    let place_x = |x: f64| x0 + (x.log10() - from_x) / (to_x - from_x) * (x1 - x0);
    let place_y = |y: f64| y0 - (y.log10() - from_y) / (to_y - from_y) * (y0 - y1);
    text(svg, left + width / 2.0, 20.0, "middle", 13, curve.title);
    text(svg, (x0 + x1) / 2.0, height - 10.0, "middle", 11, curve.x);
    text(svg, x0 - 50.0, y1 - 8.0, "start", 11, curve.y);
    for decade in from_x as i32..=to_x as i32 {
        let (value, x) = (10f64.powi(decade), place_x(10f64.powi(decade)));
        line(svg, (x, y0), (x, y1), FAINT, "");
        text(svg, x, y0 + 15.0, "middle", 10, &number(value));
    }
    for decade in from_y as i32..=to_y as i32 {
        let (value, y) = (10f64.powi(decade), place_y(10f64.powi(decade)));
        line(svg, (x0, y), (x1, y), FAINT, "");
        text(svg, x0 - 5.0, y + 3.0, "end", 10, &number(value));
    }
    let Some(&(first_x, first_y)) = curve.points.first() else { return };
    let last_x = curve.points.last().map_or(first_x, |p| p.0);
    // Up to the edge of the frame.
    let end = (last_x / first_x).min(10f64.powf(to_y) / first_y);
    let (a, b) = ((place_x(first_x), place_y(first_y)), (place_x(first_x * end), place_y(first_y * end)));
    line(svg, a, b, INK, " stroke-dasharray=\"4 4\"");
    let mut path = String::new();
    for (x, y) in &curve.points {
        let _ = write!(path, "{:.1},{:.1} ", place_x(*x), place_y(*y));
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{BLUE}\"><title>{}: {}</title></circle>",
            place_x(*x),
            place_y(*y),
            number(*x),
            number(*y)
        );
    }
    let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{BLUE}\" stroke-width=\"2\"/>", path.trim());
}

/// Draws horizontal bars with a name, a value and a remark each.
pub(crate) fn bars(title: &str, rows: &[(String, f64, String)]) -> String {
    const WIDTH: f64 = 800.0;
    const ROW: f64 = 24.0;
    let mut svg = open(WIDTH, 50.0 + ROW * rows.len() as f64);
    text(&mut svg, WIDTH / 2.0, 20.0, "middle", 13, title);
    let most = rows.iter().map(|row| row.1).fold(f64::MIN_POSITIVE, f64::max);
    for (i, (name, value, remark)) in rows.iter().enumerate() {
        let y = 36.0 + ROW * i as f64;
        let length = value / most * (WIDTH - 420.0);
        text(&mut svg, 70.0, y + 13.0, "end", 11, name);
        let _ = writeln!(
            svg,
            "<rect x=\"78\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{BLUE}\"/>",
            length.max(1.0),
            ROW - 7.0
        );
        text(&mut svg, 84.0 + length, y + 13.0, "start", 11, &format!("{value:.2}  {remark}"));
    }
    svg.push_str("</svg>\n");
    svg
}

fn open(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    )
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{INK}\">{text}</text>"
    );
}

fn line(svg: &mut String, a: (f64, f64), b: (f64, f64), stroke: &str, more: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"{more}/>",
        a.0, a.1, b.0, b.1
    );
}

/// Formats a number as short as possible.
fn number(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", round(v / 1e6)),
        v if v >= 1e3 => format!("{}k", round(v / 1e3)),
        v => round(v),
    }
}

fn round(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_stays_in_its_frame() {
        let points = vec![(1.0, 0.7), (10.0, 2.0), (200.0, 950.0)];
        let svg = curves(&[Curve { title: "a < b", x: "x", y: "y", points }]);
        for attribute in ["cx=\"", "x1=\"", "x2=\""] {
            for part in svg.split(attribute).skip(1) {
                let x: f64 = part.split('"').next().unwrap().parse().unwrap();
                assert!((62.0..=382.0).contains(&x), "{x}");
            }
        }
        assert!(svg.contains("a &lt; b"));
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.1, 2.0, 1500.0, 1e6].map(number), ["0.1", "2", "1.5k", "1M"]);
    }
}
