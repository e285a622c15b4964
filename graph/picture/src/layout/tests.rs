use proptest::prelude::*;

use super::*;

const BOX: Size = Size { width: 100.0, height: 40.0 };
const LABEL: Size = Size { width: 60.0, height: 18.0 };

fn links(ends: &[(usize, usize)]) -> Vec<Link> {
    ends.iter().map(|(from, to)| Link { from: *from, to: *to, label: None }).collect()
}

fn overlap(a: &Rect, b: &Rect) -> bool {
    a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
}

/// A route as a polyline: its vertical pieces, and the bends between them in steps.
fn polyline(route: &Route) -> Vec<Point> {
    let mut points = Vec::new();
    for (i, (above, below)) in route.pieces.iter().enumerate() {
        points.extend([*above, *below]);
        if let Some((next, _)) = route.pieces.get(i + 1) {
            points.extend((1..16).map(|step| {
                let t = f64::from(step) / 16.0;
                let eased = t * t * (3.0 - 2.0 * t);
                Point { x: below.x + (next.x - below.x) * eased, y: below.y + (next.y - below.y) * t }
            }));
        }
    }
    points
}

/// Number of pairs of routes that cross, without those that share a box.
fn crossings(layout: &Layout, links: &[Link]) -> usize {
    let lines: Vec<Vec<Point>> = layout.routes.iter().map(polyline).collect();
    let side = |a: Point, b: Point, c: Point| (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
    let cross = |a: &[Point], b: &[Point]| {
        side(a[0], a[1], b[0]) * side(a[0], a[1], b[1]) < 0.0 && side(b[0], b[1], a[0]) * side(b[0], b[1], a[1]) < 0.0
    };
    let mut count = 0;
    for i in 0..lines.len() {
        for j in 0..i {
            let (a, b) = (links[i], links[j]);
            let apart = a.from != b.from && a.to != b.to;
            let met = || lines[i].windows(2).any(|a| lines[j].windows(2).any(|b| cross(a, b)));
            count += usize::from(apart && met());
        }
    }
    count
}

fn check(layout: &Layout, links: &[Link]) {
    let labels: Vec<Rect> = layout.routes.iter().filter_map(|route| route.label).collect();
    let all: Vec<&Rect> = layout.boxes.iter().chain(&labels).collect();
    for (i, a) in all.iter().enumerate() {
        let inside =
            a.x >= -1e-6 && a.x + a.width <= layout.size.width + 1e-6 && a.y + a.height <= layout.size.height + 1e-6;
        assert!(inside, "{a:?} is outside of {:?}", layout.size);
        for b in &all[..i] {
            assert!(!overlap(a, b), "{a:?} overlaps {b:?}");
        }
    }
    for (route, link) in layout.routes.iter().zip(links) {
        assert_eq!(route.label.is_some(), link.label.is_some(), "every label has a place");
        let line = polyline(route);
        assert!(line.windows(2).all(|ends| ends[0].y <= ends[1].y), "a line goes down: {line:?}");
        let (first, last) = (line.first().unwrap(), line.last().unwrap());
        let (from, to) = (layout.boxes[link.from], layout.boxes[link.to]);
        assert!(first.x >= from.x && first.x <= from.x + from.width && (first.y - from.y - from.height).abs() < 1e-6);
        assert!(last.x >= to.x && last.x <= to.x + to.width && (last.y - to.y).abs() < 1e-6);
        for (index, foreign) in layout.boxes.iter().enumerate().filter(|(i, _)| ![link.from, link.to].contains(i)) {
            let through = line.iter().any(|p| {
                p.x > foreign.x
                    && p.x < foreign.x + foreign.width
                    && p.y > foreign.y
                    && p.y < foreign.y + foreign.height
            });
            assert!(!through, "the line from {} to {} goes through box {index}", link.from, link.to);
        }
    }
}

#[test]
fn nothing_is_drawn_of_nothing() {
    let drawn = layout(&[], &[]);
    assert_eq!((drawn.size, drawn.boxes.len(), drawn.routes.len()), (Size::default(), 0, 0));
}

#[test]
fn a_chain_is_a_straight_line() {
    let links = links(&[(0, 1), (1, 2), (2, 3)]);
    let drawn = layout(&[BOX, Size { width: 220.0, ..BOX }, BOX, Size { width: 40.0, ..BOX }], &links);
    check(&drawn, &links);
    let middles: Vec<f64> = drawn.boxes.iter().map(|b| b.x + b.width / 2.0).collect();
    assert!(middles.iter().all(|x| (x - middles[0]).abs() < 0.5), "{middles:?}");
}

#[test]
fn ways_that_part_meet_in_the_same_place() {
    // Three conditional steps in a row: branch, step, merge.
    let label = Some(LABEL);
    let mut links = Vec::new();
    for i in 0..3 {
        let (branch, step, merge) = (3 * i, 3 * i + 1, 3 * i + 2);
        links.push(Link { from: branch, to: step, label });
        links.push(Link { from: branch, to: merge, label });
        links.push(Link { from: step, to: merge, label: None });
        if i > 0 {
            links.push(Link { from: branch - 1, to: branch, label: None });
        }
    }
    let drawn = layout(&[BOX; 9], &links);
    check(&drawn, &links);
    let middle = |i: usize| drawn.boxes[i].x + drawn.boxes[i].width / 2.0;
    assert!((middle(0) - middle(8)).abs() < 5.0, "{} and {}", middle(0), middle(8));
    assert_eq!(crossings(&drawn, &links), 0);
}

#[test]
fn short_branches_hang_where_they_are_needed() {
    let links = links(&[(0, 1), (1, 2), (2, 4), (3, 4)]);
    let drawn = layout(&[BOX; 5], &links);
    assert!((drawn.boxes[3].y - drawn.boxes[2].y).abs() < 1e-6, "the second source stands beside the last step");
}

#[test]
fn trees_have_no_crossings() {
    // Children are given in an order that would make lines cross.
    let ends: Vec<(usize, usize)> = (1..40).map(|child| ((child * 7 % 40).min(child - 1) / 2, child)).collect();
    let links = links(&ends);
    let drawn = layout(&[BOX; 40], &links);
    check(&drawn, &links);
    assert_eq!(crossings(&drawn, &links), 0);
}

#[test]
fn what_would_close_a_cycle_is_left_out() {
    let drawn = layout(&[BOX; 3], &links(&[(0, 1), (1, 0), (2, 2), (2, 9)]));
    assert_eq!(drawn.boxes.len(), 3);
    assert_eq!(drawn.routes.len(), 4);
    assert!(drawn.routes[2].pieces.is_empty() && drawn.routes[3].pieces.is_empty());
}

#[test]
fn five_thousand_boxes_take_no_time() {
    let ends: Vec<(usize, usize)> = (1..5000).map(|i| (i - 1 - (i % 3).min(i - 1), i)).collect();
    let before = anabranch_template::processor_time::taken_by_thread();
    let drawn = layout(&vec![BOX; 5000], &links(&ends));
    assert_eq!(drawn.boxes.len(), 5000);
    let taken = anabranch_template::processor_time::taken_by_thread() - before;
    assert!(taken.as_secs() < 30, "{taken:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_overlaps_in_any_graph(
        widths in prop::collection::vec((20.0..300.0f64, 20.0..120.0f64), 2..24),
        ends in prop::collection::vec((0usize..24, 0usize..24, any::<bool>()), 0..40),
    ) {
        let boxes: Vec<Size> = widths.iter().map(|(width, height)| Size { width: *width, height: *height }).collect();
        let n = boxes.len();
        let links: Vec<Link> = ends
            .iter()
            .map(|(a, b, labelled)| ((a % n).min(b % n), (a % n).max(b % n), *labelled))
            .filter(|(a, b, _)| a != b)
            .map(|(from, to, labelled)| Link { from, to, label: labelled.then_some(LABEL) })
            .collect();
        check(&layout(&boxes, &links), &links);
    }
}
