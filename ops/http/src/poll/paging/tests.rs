use anabranch_record::json::parse_value;
use reqwest::header::HeaderValue;

use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn paging(next: NextPage) -> Paging {
    Paging { next, size: Some(("limit".into(), 2)), limit: 10 }
}

#[test]
fn the_link_to_the_next_page_is_found() {
    let found = |texts: &[&str]| {
        let values = texts.iter().map(|text| (LINK, HeaderValue::from_str(text).unwrap()));
        next_link(&values.collect())
    };
    assert_eq!(
        found(&[r#"<http://x/?page=1>; rel="prev", <http://x/?page=3>; rel="next""#]).unwrap(),
        "http://x/?page=3"
    );
    assert_eq!(found(&["<a>; rel=last", "<b,c>; title=\"x, <y>; rel=next\"; rel=\"last NEXT\""]).unwrap(), "b,c");
    for none in ["", "<a>", "<a>; rel=nextx", "<a; rel=next", "a; rel=next", "<a>; title=\"rel=next\""] {
        assert_eq!(found(&[none]), None, "{none}");
    }
}

#[test]
fn parameters_replace_those_of_the_url() {
    let base = url("http://x/items?cursor=old&q=a%20b");
    let pages = paging(NextPage::Cursor(JsonPointer::default(), "cursor".into()));
    let shown =
        |page: &PageRequest| pages.url(&base, page, Some(("since", "2026-01-01T00:00:00+01:00"))).unwrap().to_string();
    assert_eq!(
        shown(&PageRequest::Cursor("n&x".to_owned())),
        "http://x/items?q=a+b&since=2026-01-01T00%3A00%3A00%2B01%3A00&limit=2&cursor=n%26x"
    );
    assert_eq!(
        paging(NextPage::Link).url(&url("http://x/a?b"), &PageRequest::First, None).unwrap().as_str(),
        "http://x/a?b=&limit=2"
    );
    let plain = Paging { size: None, ..paging(NextPage::Link) };
    assert_eq!(plain.url(&url("http://x/a?b"), &PageRequest::First, None).unwrap().as_str(), "http://x/a?b");
}

#[test]
fn each_kind_ends() {
    let body = parse_value(br#"{"next":"b","end":null,"empty":"","url":"/items?p=2","foreign":"http://y/","list":[]}"#)
        .unwrap();
    let base = url("http://x/items");
    let honoured = |next: NextPage, page: PageRequest, records, is_honoured| {
        paging(next).after(&page, &base, &HeaderMap::new(), &body, records, is_honoured)
    };
    let after = |next: NextPage, page: PageRequest, records| honoured(next, page, records, false);
    let pointer = |text| JsonPointer::parse(text).unwrap();
    let cursor = |text| NextPage::Cursor(pointer(text), "cursor".into());
    assert_eq!(after(cursor("/next"), PageRequest::First, 0), Ok(Some(PageRequest::Cursor("b".to_owned()))));
    assert_eq!(after(cursor("/next"), PageRequest::Cursor("b".to_owned()), 0), Err(InvalidPage::Loop));
    assert_eq!(after(cursor("/list"), PageRequest::First, 0), Err(InvalidPage::Kind("list")));
    for end in ["/end", "/empty", "/absent"] {
        assert_eq!(after(cursor(end), PageRequest::First, 9), Ok(None), "{end}");
    }
    let next = PageRequest::Url("http://x/items?p=2".to_owned());
    assert_eq!(after(NextPage::Url(pointer("/url")), PageRequest::First, 0), Ok(Some(next)));
    assert_eq!(
        after(NextPage::Url(pointer("/foreign")), PageRequest::First, 0),
        Err(InvalidPage::Foreign("http://y".to_owned()))
    );
    let offset = || NextPage::Offset { parameter: "offset".into() };
    assert_eq!(after(offset(), PageRequest::First, 2), Ok(Some(PageRequest::Offset(2))));
    assert_eq!(after(offset(), PageRequest::Offset(2), 1), Ok(Some(PageRequest::Offset(3))), "a limit of the server");
    assert_eq!(after(offset(), PageRequest::Offset(3), 0), Ok(None));
    assert_eq!(honoured(offset(), PageRequest::Offset(2), 2, true), Ok(Some(PageRequest::Offset(4))));
    assert_eq!(honoured(offset(), PageRequest::Offset(4), 1, true), Ok(None), "the server honours the size of 2");
    let number = || NextPage::Number { parameter: "page".into(), first: 0 };
    assert_eq!(after(number(), PageRequest::First, 1), Ok(Some(PageRequest::Number(1))));
    assert_eq!(after(number(), PageRequest::Number(1), 0), Ok(None));
}
