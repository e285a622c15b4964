//! Parsing and composition of URLs.

use std::net::Ipv6Addr;

use anabranch_record::text::Str;

use super::signature::function;
use super::{CallError, Function};
use crate::template::val::{Dict, Map, Text, Val};

/// The table.
pub(super) static TABLE: &[Function] = &[
    function!("urlParse", (url: Text) => try parsed(&url.lossy())),
    function!("urlJoin", (parts: Map) => try joined(parts)),
];

/// A URL. Its parts are unescaped except for the query.
#[derive(Debug, Default)]
struct Url {
    scheme: String,
    /// The text after the scheme if it does not begin with a slash.
    opaque: String,
    userinfo: Option<UserInfo>,
    host: Vec<u8>,
    path: Vec<u8>,
    query: String,
    fragment: Vec<u8>,
}

#[derive(Debug)]
struct UserInfo {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

/// A part of a URL, which determines the characters that are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlPart {
    Path,
    Host,
    /// The zone of an IPv6 address.
    Zone,
    User,
    Fragment,
}

impl UrlPart {
    fn is_plain(self, byte: u8) -> bool {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            return true;
        }
        match self {
            UrlPart::Host | UrlPart::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
            UrlPart::Path => b"$&+,/:;=@".contains(&byte),
            UrlPart::User => b"$&+,;=".contains(&byte),
            UrlPart::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
        }
    }

    fn escape(self, bytes: &[u8], out: &mut String) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        for byte in bytes {
            if self.is_plain(*byte) {
                out.push(char::from(*byte));
            } else {
                out.push('%');
                out.push(char::from(DIGITS[usize::from(byte >> 4)]));
                out.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
        }
    }

    fn unescape(self, text: &str) -> Result<Vec<u8>, String> {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte != b'%' {
                if matches!(self, UrlPart::Host | UrlPart::Zone) && byte.is_ascii() && !self.is_plain(byte) {
                    return Err(format!("{:?} is not allowed in a host name", char::from(byte)));
                }
                out.push(byte);
                continue;
            }
            let wrong =
                || format!("%{} is not a valid escape here", String::from_utf8_lossy(&after[..after.len().min(2)]));
            let [high, low, after @ ..] = after else { return Err(wrong()) };
            let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let value = digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low).ok_or_else(wrong)?;
            let allowed = match self {
                // Only bytes outside ASCII may be escaped, and the percent sign before a zone.
                UrlPart::Host => value >= 0x80 || value == b'%',
                UrlPart::Zone => value == b'%' || value == b' ' || UrlPart::Host.is_plain(value),
                UrlPart::Path | UrlPart::User | UrlPart::Fragment => true,
            };
            if !allowed {
                return Err(wrong());
            }
            out.push(value);
            rest = after;
        }
        Ok(out)
    }
}

impl UserInfo {
    fn parse(text: &str) -> Result<UserInfo, String> {
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b)) {
            return Err("the user information has characters that must be escaped".to_owned());
        }
        let (name, password) = text.split_once(':').map_or((text, None), |(name, password)| (name, Some(password)));
        Ok(UserInfo {
            name: UrlPart::User.unescape(name)?,
            password: password.map(|p| UrlPart::User.unescape(p)).transpose()?,
        })
    }

    fn write(&self, out: &mut String) {
        UrlPart::User.escape(&self.name, out);
        if let Some(password) = &self.password {
            out.push(':');
            UrlPart::User.escape(password, out);
        }
    }
}

impl Url {
    fn parse(text: &str) -> Result<Url, String> {
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err("it contains a control character".to_owned());
        }
        let mut url = Url::default();
        if text == "*" {
            url.path = b"*".to_vec();
        } else {
            url.read(text)?;
        }
        url.fragment = UrlPart::Fragment.unescape(fragment)?;
        Ok(url)
    }

    /// Parses all parts except the fragment.
    fn read(&mut self, text: &str) -> Result<(), String> {
        let (scheme, rest) = scheme(text)?;
        self.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut self.query);
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                rest.clone_into(&mut self.opaque);
                return Ok(());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("the first segment of a path must not contain a colon".to_owned());
            }
        }
        if (!scheme.is_empty() || !rest.starts_with("///"))
            && let Some(after) = rest.strip_prefix("//")
        {
            let end = after.find('/').unwrap_or(after.len());
            self.authority(&after[..end])?;
            rest = &after[end..];
        }
        self.path = UrlPart::Path.unescape(rest)?;
        Ok(())
    }

    fn authority(&mut self, text: &str) -> Result<(), String> {
        let (userinfo, host) = text.rsplit_once('@').map_or((None, text), |(user, host)| (Some(user), host));
        self.host = parsed_host(&self.scheme, host)?;
        self.userinfo = userinfo.map(UserInfo::parse).transpose()?;
        Ok(())
    }

    /// Returns the host without port and brackets.
    fn host_name(&self) -> &[u8] {
        let host = match self.host.iter().rposition(|b| *b == b':') {
            Some(colon) if is_port(&self.host[colon..]) => &self.host[..colon],
            _ => &self.host,
        };
        host.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]")).unwrap_or(host)
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&self.scheme);
            out.push(':');
        }
        if self.opaque.is_empty() {
            let named = !self.host.is_empty() || self.userinfo.is_some();
            if named || !self.scheme.is_empty() && !self.path.is_empty() {
                out.push_str("//");
                if let Some(userinfo) = &self.userinfo {
                    userinfo.write(&mut out);
                    out.push('@');
                }
                UrlPart::Host.escape(&self.host, &mut out);
            }
            if !self.path.is_empty() && !self.path.starts_with(b"/") && !self.host.is_empty() {
                out.push('/');
            }
            let mut path = String::new();
            if self.path == b"*" {
                path.push('*');
            } else {
                UrlPart::Path.escape(&self.path, &mut path);
            }
            // A colon in the first segment would end a scheme.
            if out.is_empty() && path.split('/').next().is_some_and(|segment| segment.contains(':')) {
                out.push_str("./");
            }
            out.push_str(&path);
        } else {
            out.push_str(&self.opaque);
        }
        if !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            UrlPart::Fragment.escape(&self.fragment, &mut out);
        }
        f.write_str(&out)
    }
}

/// Returns the scheme and the text after its colon; the scheme is empty if there is none.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    match text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))) {
        Some(0) if text.starts_with(':') => Err("the scheme is missing".to_owned()),
        Some(end) if text[end..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

/// Returns `true` for an empty text, and for a colon followed by digits.
fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    }
}

fn parsed_host(scheme: &str, text: &str) -> Result<Vec<u8>, String> {
    let no_port = |port: &str| format!("{port:?} is not a port");
    match text.rfind('[') {
        Some(0) => {}
        Some(_) => return Err("only an address may be in brackets".to_owned()),
        None => {
            // Lists of hosts have several colons, but not in these schemes.
            let strict = matches!(scheme, "http" | "https");
            let colon = if strict { text.find(':') } else { text.rfind(':') };
            if let Some(port) = colon.map(|colon| &text[colon..])
                && !is_port(port.as_bytes())
            {
                return Err(no_port(port));
            }
            return UrlPart::Host.unescape(text);
        }
    }
    let end = text.rfind(']').ok_or("the closing bracket of the host is missing")?;
    let (inner, port) = (&text[1..end], &text[end + 1..]);
    if !is_port(port.as_bytes()) {
        return Err(no_port(port));
    }
    let (address, zone) = inner.split_at(inner.find("%25").unwrap_or(inner.len()));
    let address = UrlPart::Host.unescape(address)?;
    let zone = UrlPart::Zone.unescape(zone)?;
    let is_address = str::from_utf8(&address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    if !is_address || zone == b"%" {
        return Err("only an IPv6 address may be in brackets".to_owned());
    }
    Ok([b"[", address.as_slice(), &zone, b"]", port.as_bytes()].concat())
}

fn parsed(text: &str) -> Result<Dict, CallError> {
    let url = Url::parse(text).map_err(|reason| CallError::from(format!("unable to parse url {text:?}: {reason}")))?;
    let mut userinfo = String::new();
    if let Some(info) = &url.userinfo {
        info.write(&mut userinfo);
    }
    let entries = [
        ("hostname", Text::from_bytes(url.host_name())),
        ("scheme", url.scheme.as_str().into()),
        ("host", Text::from_bytes(&url.host)),
        ("path", Text::from_bytes(&url.path)),
        ("query", url.query.as_str().into()),
        ("opaque", url.opaque.as_str().into()),
        ("fragment", Text::from_bytes(&url.fragment)),
        ("userinfo", userinfo.into()),
    ];
    Ok(Dict::from_entries(entries.map(|(key, text)| (Str::from_static(key), Val::Text(text)))))
}

fn joined(parts: &Map) -> Result<String, CallError> {
    let bytes = |key: &str| match parts.get(key) {
        None => Ok(Vec::new()),
        Some(Val::Text(text)) => Ok(text.as_bytes().to_vec()),
        Some(other) => Err(CallError::from(format!("{key:?} must be a text, but is {}", other.in_words()))),
    };
    let text = |key: &str| bytes(key).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let userinfo = text("userinfo")?;
    let userinfo = if userinfo.is_empty() {
        None
    } else {
        // Parsed as part of a URL, so that it cannot contain a character that ends it.
        let url = Url::parse(&format!("proto://{userinfo}@host"))
            .map_err(|reason| CallError::from(format!("unable to parse userinfo: {reason}")))?;
        url.userinfo
    };
    let url = Url {
        scheme: text("scheme")?,
        opaque: text("opaque")?,
        userinfo,
        host: bytes("host")?,
        path: bytes("path")?,
        query: text("query")?,
        fragment: bytes("fragment")?,
    };
    Ok(url.to_string())
}
