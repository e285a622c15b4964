//! The web interface: a page and its assets, embedded in the binary. Loading it needs no token, because it contains no
//! data of the service; it gets its data from the API like other clients.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::error;

/// A file of the page.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $kind:expr),* $(,)?) => {
        &[$(Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("../../../ui/", $name)) }),*]
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const PAGE: Asset =
    Asset { name: "index.html", kind: "text/html; charset=utf-8", bytes: include_bytes!("../../../ui/index.html") };

const ASSETS: &[Asset] = assets! {
    "api.js": SCRIPT,
    "canvas.js": SCRIPT,
    "cluster.js": SCRIPT,
    "dialog.js": SCRIPT,
    "dom.js": SCRIPT,
    "drawing.js": SCRIPT,
    "format.js": SCRIPT,
    "icon.svg": "image/svg+xml",
    "inspect.js": SCRIPT,
    "letters.js": SCRIPT,
    "main.js": SCRIPT,
    "node.js": SCRIPT,
    "overview.js": SCRIPT,
    "page.css": STYLE,
    "pipeline.js": SCRIPT,
    "plan.js": SCRIPT,
    "poll.js": SCRIPT,
    "positions.js": SCRIPT,
    "rates.js": SCRIPT,
    "record.js": SCRIPT,
    "status.js": SCRIPT,
};

/// Only resources of this origin are loaded, run and requested; other pages cannot frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(page)).route("/ui/{name}", get(asset))
}

async fn page(asked: HeaderMap) -> Response {
    PAGE.answer(&asked)
}

async fn asset(uri: Uri, asked: HeaderMap) -> Response {
    let name = uri.path().trim_start_matches("/ui/");
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => asset.answer(&asked),
        None => error::no_such_path(uri).await.into_response(),
    }
}

impl Asset {
    /// Returns the file, or `304 Not Modified` if the browser has it. The browser revalidates each time: after an
    /// upgrade of the service it must not mix old and new files.
    fn answer(&self, asked: &HeaderMap) -> Response {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        let tag = format!("\"{:016x}\"", hasher.finish());
        let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let same = known.flat_map(|tags| tags.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag);
        let headers = [
            (ETAG, tag.as_str()),
            (CACHE_CONTROL, "no-cache"),
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, POLICY),
            (REFERRER_POLICY, "no-referrer"),
            (X_FRAME_OPTIONS, "DENY"),
        ];
        match same {
            true => (StatusCode::NOT_MODIFIED, headers).into_response(),
            false => (headers, self.bytes).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ASSETS, PAGE};

    #[test]
    fn every_file_of_the_page_is_served() {
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui")).unwrap();
        let files: BTreeSet<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        let served: BTreeSet<_> = ASSETS.iter().chain([&PAGE]).map(|asset| asset.name.to_owned()).collect();
        assert_eq!(served, files);
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        for asset in ASSETS.iter().chain([&PAGE]) {
            let text = std::str::from_utf8(asset.bytes).unwrap().replace("http://www.w3.org/2000/svg", "");
            let foreign =
                text.match_indices("://").find(|(at, _)| !text[..*at].ends_with("ws") && !text[..*at].ends_with("wss"));
            assert_eq!(foreign, None, "{}", asset.name);
        }
    }
}
