//! Plans as an interactive page. It is self-contained: styles, script, drawings and data are included.

use std::fmt::Write as _;

use super::figure::Purpose;
use super::svg::{self, Escaped};
use super::{Pass, Picture};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Returns a page with the pictures of several passes, of which `first` is shown first.
pub(super) fn print(pictures: &[Picture<'_>], first: Pass) -> String {
    let Some(picture) = pictures.iter().find(|picture| picture.pass == first) else { return String::new() };
    let name = Escaped(picture.pipeline);
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{name}: plan</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{name}</h1>\n",
        svg::STYLE
    );
    out.push_str("<div class=\"group\" role=\"tablist\" aria-label=\"Passes\">\n");
    for picture in pictures {
        let (pass, shown) = (picture.pass.as_str(), picture.pass == first);
        let _ = writeln!(
            out,
            "<button type=\"button\" role=\"tab\" id=\"tab-{pass}\" aria-controls=\"panel-{pass}\" \
             aria-selected=\"{shown}\">{pass}</button>"
        );
    }
    out.push_str(
        "</div>\n<div class=\"group\">\n\
         <button type=\"button\" id=\"beside\" aria-pressed=\"false\">side by side</button>\n\
         <button type=\"button\" id=\"closer\" aria-label=\"zoom in\">+</button>\n\
         <button type=\"button\" id=\"farther\" aria-label=\"zoom out\">−</button>\n\
         <button type=\"button\" id=\"whole\">fit</button>\n</div>\n",
    );
    let _ = writeln!(out, "<p>{}</p>", Escaped(&picture.limits.sentence()));
    if let Some(totals) = &picture.measured {
        let _ = writeln!(out, "<p>{}</p>", Escaped(&totals.sentence()));
    }
    out.push_str("</header>\n<main>\n<div class=\"panels\">\n");
    for picture in pictures {
        panel(&mut out, picture, picture.pass == first);
    }
    out.push_str(
        "</div>\n<aside id=\"details\" aria-live=\"polite\" aria-label=\"Details\">\n\
         <p>Choose a node to see its settings.</p>\n\
         <p>Drag or scroll to move, Ctrl and scroll to zoom. Keys: Tab goes from node to node, Enter chooses, arrows move, \
         + and − zoom, 0 fits, Escape closes.</p>\n</aside>\n</main>\n",
    );
    promises(&mut out, picture);
    out.push_str("<script type=\"application/json\" id=\"plans\">");
    // Inside a script element, only characters that could end it are escaped.
    let data = serde_json::to_string(pictures).unwrap_or_default();
    data.chars().for_each(|c| match c {
        '<' | '>' | '&' | '\u{fffe}' | '\u{ffff}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
        c => out.push(c),
    });
    let _ = write!(out, "</script>\n<script>\n//<![CDATA[\n{SCRIPT}//]]>\n</script>\n</body>\n</html>\n");
    out
}

fn panel(out: &mut String, picture: &Picture<'_>, shown: bool) {
    let pass = picture.pass.as_str();
    let _ = write!(
        out,
        "<div class=\"panel\" role=\"tabpanel\" id=\"panel-{pass}\" aria-labelledby=\"tab-{pass}\"{}>\n<h2>{}</h2>\n\
         <div class=\"view\" tabindex=\"0\" role=\"group\" aria-label=\"Drawing of the {pass} plan\">\n{}</div>\n</div>\n",
        if shown { "" } else { " hidden=\"hidden\"" },
        Escaped(&picture.counted()),
        svg::embedded(picture, Purpose::Print)
    );
}

fn promises(out: &mut String, picture: &Picture<'_>) {
    out.push_str(
        "<section class=\"promises\" aria-label=\"Guarantees\">\n<table>\n<thead><tr><th scope=\"col\">from → to</th>\
         <th scope=\"col\">delivery and order</th><th scope=\"col\">duplicates</th></tr></thead>\n<tbody>\n",
    );
    for promise in picture.promises() {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
            Escaped(&promise.way),
            Escaped(&promise.guarantee),
            Escaped(&promise.duplicates)
        );
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}
