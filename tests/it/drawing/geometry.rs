//! Where things are in a drawing.

use roxmltree::{Document, Node, ParsingOptions};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

type Point = (f64, f64);

/// Pieces of a curve. Odd, so that curves which cross in their middles do not do so in a point of both.
const STEPS: i32 = 41;

/// A line between two nodes, as points so near to each other that it is straight between them.
#[derive(Debug)]
pub struct Line {
    from: String,
    to: String,
    points: Vec<Point>,
}

/// The elements of a drawing.
pub struct Drawing {
    size: Rect,
    pub nodes: Vec<(String, Rect)>,
    stages: Vec<Rect>,
    labels: Vec<Rect>,
    texts: Vec<(String, Rect)>,
    pub lines: Vec<Line>,
}

pub fn lenient<'a>() -> ParsingOptions<'a> {
    ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or_else(|| panic!("no {name} in {node:?}"));
    text.trim_end_matches("pt").parse().unwrap_or_else(|_| panic!("{name}={text:?}"))
}

impl Rect {
    fn of(node: &Node<'_, '_>, shift: Point) -> Self {
        let [x, y, width, height] = ["x", "y", "width", "height"].map(|name| number(node, name));
        Rect { x: x + shift.0, y: y + shift.1, width, height }
    }

    fn overlaps(&self, other: &Rect) -> bool {
        let apart = |a: f64, b: f64| b - a > 0.11;
        apart(self.x, other.x + other.width)
            && apart(other.x, self.x + self.width)
            && apart(self.y, other.y + other.height)
            && apart(other.y, self.y + self.height)
    }

    fn holds(&self, other: &Rect) -> bool {
        other.x >= self.x - 0.11
            && other.y >= self.y - 0.11
            && other.x + other.width <= self.x + self.width + 0.11
            && other.y + other.height <= self.y + self.height + 0.11
    }

    fn is_entered_by(&self, (x, y): Point) -> bool {
        x > self.x + 0.11 && x < self.x + self.width - 0.11 && y > self.y + 0.11 && y < self.y + self.height - 0.11
    }
}

impl Drawing {
    pub fn read(svg: &str) -> Self {
        let document = Document::parse(svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
        let root = document.root_element();
        let figure = root.children().find(|n| n.has_tag_name("g") && n.attribute("transform").is_some()).unwrap();
        let transform = figure.attribute("transform").unwrap();
        let inner = transform.strip_prefix("translate(").and_then(|t| t.strip_suffix(')')).unwrap();
        let (x, y) = inner.split_once(' ').unwrap();
        let shift: Point = (x.parse().unwrap(), y.parse().unwrap());
        let rect = |group: &Node<'_, '_>| Rect::of(&group.children().find(|n| n.has_tag_name("rect")).unwrap(), shift);
        let is = |node: &Node<'_, '_>, class: &str| {
            node.attribute("class").is_some_and(|classes| classes.split(' ').any(|c| c == class))
        };
        let groups = |class: &'static str| figure.children().filter(move |n| n.has_tag_name("g") && is(n, class));
        Drawing {
            size: Rect { x: 0.0, y: 0.0, width: number(&root, "width"), height: number(&root, "height") },
            nodes: groups("node").map(|n| (n.attribute("data-node").unwrap().to_owned(), rect(&n))).collect(),
            stages: groups("stage").map(|n| rect(&n)).collect(),
            labels: groups("said").map(|n| rect(&n)).collect(),
            texts: root
                .descendants()
                .filter(|n| n.has_tag_name("text"))
                .map(|n| {
                    let inside = n.ancestors().any(|a| a == figure);
                    (n.text().unwrap_or_default().to_owned(), text_box(&n, if inside { shift } else { (0.0, 0.0) }))
                })
                .collect(),
            lines: figure
                .children()
                .filter(|n| is(n, "edge"))
                .map(|n| Line {
                    from: n.attribute("data-from").unwrap().to_owned(),
                    to: n.attribute("data-to").unwrap().to_owned(),
                    points: path(n.attribute("d").unwrap(), shift),
                })
                .collect(),
        }
    }

    /// Nothing overlaps what it must not, everything is inside of the drawing, and no line enters a foreign node.
    pub fn check(&self) {
        for (i, (text, a)) in self.texts.iter().enumerate() {
            assert!(self.size.holds(a), "{text:?} is outside of the drawing");
            for (other, b) in &self.texts[..i] {
                assert!(!a.overlaps(b), "{text:?} overlaps {other:?}");
            }
        }
        let solid: Vec<&Rect> = self.nodes.iter().map(|(_, rect)| rect).chain(&self.labels).collect();
        for (i, a) in solid.iter().enumerate() {
            assert!(self.size.holds(a));
            solid[..i].iter().for_each(|b| assert!(!a.overlaps(b), "{a:?} overlaps {b:?}"));
            // A text that begins in a box ends in it.
            for (text, place) in self.texts.iter().filter(|(_, place)| a.overlaps(place)) {
                assert!(a.holds(place), "{text:?} sticks out of its box: {place:?}, {a:?}");
            }
        }
        for (i, a) in self.stages.iter().enumerate() {
            self.stages[..i].iter().for_each(|b| assert!(!a.overlaps(b), "two stages overlap"));
            for node in solid.iter().filter(|node| a.overlaps(node)) {
                assert!(a.holds(node), "a node is half in a stage");
            }
        }
        for line in &self.lines {
            for (id, rect) in self.nodes.iter().filter(|(id, _)| ![&line.from, &line.to].contains(&id)) {
                let entered = line.points.iter().any(|point| rect.is_entered_by(*point));
                assert!(!entered, "the line from {} to {} goes through node {id}", line.from, line.to);
            }
        }
    }
}

/// Room that a text takes in a usual sans-serif or monospaced face.
fn text_box(node: &Node<'_, '_>, shift: Point) -> Rect {
    let (x, y, size) = (number(node, "x") + shift.0, number(node, "y") + shift.1, number(node, "font-size"));
    let advance = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' | 't' | 'f' | 'r' | '(' | ')' => 0.32,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.9,
        c if c.is_ascii_uppercase() => 0.68,
        c if c.is_ascii() => 0.57,
        _ => 1.0,
    };
    let mono = node.attribute("class").is_some_and(|class| class == "condition" || class == "records");
    let text = node.text().unwrap_or_default();
    let width = text.chars().map(|c| if mono { 0.6 } else { advance(c) }).sum::<f64>() * size;
    let x = if node.attribute("text-anchor") == Some("middle") { x - width / 2.0 } else { x };
    Rect { x, y: y - size * 0.75, width, height: size * 0.95 }
}

/// The points of a path of absolute moves, lines and cubic curves.
fn path(d: &str, (dx, dy): Point) -> Vec<Point> {
    let spaced: String =
        d.chars().flat_map(|c| if c.is_ascii_alphabetic() { vec![' ', c, ' '] } else { vec![c] }).collect();
    let mut words = spaced.split([' ', ',']).filter(|word| !word.is_empty()).peekable();
    let mut points: Vec<Point> = Vec::new();
    let mut command = 'M';
    while let Some(word) = words.peek() {
        if let Some(letter) = word.chars().next().filter(char::is_ascii_alphabetic) {
            command = letter;
            words.next();
            continue;
        }
        let mut next = || words.next().unwrap().parse::<f64>().unwrap();
        let last = points.last().copied().unwrap_or_default();
        match command {
            'V' => {
                let to = next() + dy;
                points.extend((1..=STEPS).map(|i| (last.0, last.1 + (to - last.1) * f64::from(i) / f64::from(STEPS))));
            }
            'C' => {
                let [a, b, c] = [(); 3].map(|()| (next() + dx, next() + dy));
                points.extend((1..=STEPS).map(|i| {
                    let t = f64::from(i) / f64::from(STEPS);
                    let u = 1.0 - t;
                    let at = |p: [f64; 4]| {
                        u * u * u * p[0] + 3.0 * u * u * t * p[1] + 3.0 * u * t * t * p[2] + t * t * t * p[3]
                    };
                    (at([last.0, a.0, b.0, c.0]), at([last.1, a.1, b.1, c.1]))
                }));
            }
            _ => points.push((next() + dx, next() + dy)),
        }
    }
    points
}

/// The lines of a drawing by Graphviz.
pub fn graphviz_lines(svg: &str) -> Vec<Line> {
    let document = Document::parse_with_options(svg, lenient()).unwrap();
    let edges = document.descendants().filter(|n| n.attribute("class") == Some("edge"));
    edges
        .map(|edge| {
            let child = |name: &'static str| edge.children().find(move |n| n.has_tag_name(name)).unwrap();
            let title = child("title").text().unwrap();
            let (from, to) = title.split_once("->").unwrap();
            Line { from: from.into(), to: to.into(), points: path(child("path").attribute("d").unwrap(), (0.0, 0.0)) }
        })
        .collect()
}

/// Number of pairs of lines without a common node that cross.
pub fn crossings(lines: &[Line]) -> usize {
    let side = |a: Point, b: Point, c: Point| (b.0 - a.0) * (c.1 - a.1) - (b.1 - a.1) * (c.0 - a.0);
    let cross = |a: &[Point], b: &[Point]| {
        side(a[0], a[1], b[0]) * side(a[0], a[1], b[1]) < 0.0 && side(b[0], b[1], a[0]) * side(b[0], b[1], a[1]) < 0.0
    };
    let mut count = 0;
    for (i, a) in lines.iter().enumerate() {
        for b in &lines[..i] {
            let apart = a.from != b.from && a.to != b.to;
            let met = || a.points.windows(2).any(|a| b.points.windows(2).any(|b| cross(a, b)));
            count += usize::from(apart && met());
        }
    }
    count
}

#[test]
fn crossings_are_seen() {
    let line = |from: &str, to: &str, d: &str| Line { from: from.into(), to: to.into(), points: path(d, (0.0, 0.0)) };
    let down = line("a", "b", "M0 0 C0 50 100 50 100 100");
    assert_eq!(crossings(&[down, line("c", "d", "M100,0C100,50 0,50 0,100")]), 1);
}
