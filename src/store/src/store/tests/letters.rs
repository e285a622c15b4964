//! Dead letters: numbers, names, bounds, and what a replay leaves.

use anabranch_plugin::letter::{FullQueue, LetterBound, LetterBounds, WhenFull};
use bytes::Bytes;

use super::*;
use crate::letters::{LetterSelection, LetterTotals, ReplayedLetter, StoredLetter, key};

fn letter(name: &str, first: u64, content: &'static [u8]) -> StoredLetter {
    StoredLetter { first, attempts: 1, key: key(name), content: Bytes::from_static(content) }
}

fn at_most(count: u64) -> LetterBounds {
    LetterBounds { count, ..EVICTING }
}

const EVICTING: LetterBounds = LetterBounds { full: WhenFull::DropOldest, ..LetterBounds::NONE };

/// Number, attempts and content of all letters, newest first.
async fn all(store: &Store) -> Vec<(u64, u32, String)> {
    let found = store.letters_below(&"p".into(), u64::MAX, 100).await.unwrap();
    let shown = |(number, letter): (u64, StoredLetter)| {
        (number, letter.attempts, String::from_utf8(letter.content.to_vec()).unwrap())
    };
    found.into_iter().map(shown).collect()
}

fn shown(letters: &[(u64, u32, &str)]) -> Vec<(u64, u32, String)> {
    letters.iter().map(|(number, attempts, content)| (*number, *attempts, (*content).to_owned())).collect()
}

#[tokio::test]
async fn letters_have_rising_numbers_and_one_of_each_name() {
    for store in TestDatabases::new().stores() {
        let pipeline = Str::from("p");
        let bounds = LetterBounds::NONE;
        store.put_letters(&pipeline, vec![letter("a", 5, b"a"), letter("b", 6, b"b")], &bounds).await.unwrap();
        store.put_letters(&"p2".into(), vec![letter("a", 1, b"other")], &bounds).await.unwrap();
        // The row was read again: the letter is the same one, with what is known of it now.
        store.put_letters(&pipeline, vec![letter("a", 9, b"a again"), letter("c", 9, b"c")], &bounds).await.unwrap();
        assert_eq!(all(&store).await, shown(&[(3, 1, "c"), (2, 1, "b"), (1, 1, "a again")]));
        let found = store.letters_numbered(&pipeline, vec![3, 7, 1]).await.unwrap();
        assert_eq!(found.iter().map(|(number, letter)| (*number, letter.first)).collect::<Vec<_>>(), [(3, 9), (1, 5)]);
        assert_eq!(store.letters_below(&pipeline, 3, 1).await.unwrap()[0].0, 2);

        assert_eq!(store.remove_letters(&pipeline, LetterSelection::Numbers(vec![2, 2, 8])).await.unwrap(), 1);
        assert_eq!(store.remove_letters(&pipeline, LetterSelection::Before(9)).await.unwrap(), 1);
        // A number is never used again.
        assert_eq!(store.remove_letters(&pipeline, LetterSelection::All).await.unwrap(), 1);
        store.put_letters(&pipeline, vec![letter("a", 1, b"new")], &bounds).await.unwrap();
        assert_eq!(all(&store).await, shown(&[(4, 1, "new")]));
        let totals = store.letter_totals(&"p2".into()).await.unwrap();
        assert_eq!((totals.count, totals.oldest), (1, Some(1)));
        assert_eq!(store.letter_totals(&"nobody".into()).await.unwrap(), LetterTotals::default());
    }
}

#[tokio::test]
async fn a_full_queue_takes_no_further_letter_and_loses_none() {
    for store in TestDatabases::new().stores() {
        let pipeline = Str::from("p");
        let named = |n: u64| letter(&n.to_string(), n, b"0123456789");
        let three = LetterBounds { count: 3, ..LetterBounds::NONE };
        let kept = store.put_letters(&pipeline, (1..=5).map(named).collect(), &three).await.unwrap();
        let LetterTotals { count, bytes, evicted, .. } = store.letter_totals(&pipeline).await.unwrap();
        assert_eq!((count, evicted, kept.kept, kept.evicted), (3, 0, 3, 0));
        assert_eq!(kept.full, Some(FullQueue { bound: LetterBound::Count(3), count, bytes }));
        assert_eq!(all(&store).await.iter().map(|(number, ..)| *number).collect::<Vec<_>>(), [3, 2, 1]);
        // Letters that are there already are kept, those behind one that finds no room are not.
        let again = vec![named(3), named(1), named(4), named(2)];
        let kept = store.put_letters(&pipeline, again, &three).await.unwrap();
        assert_eq!((kept.kept, kept.full.map(|full| full.count)), (2, Some(3)));
        assert_eq!(store.letter_totals(&pipeline).await.unwrap().count, 3);
        // The bound of bytes is exact, too.
        let exact = LetterBounds { bytes: bytes + bytes / 3, ..LetterBounds::NONE };
        let kept = store.put_letters(&pipeline, vec![named(4), named(5)], &exact).await.unwrap();
        assert_eq!((kept.kept, kept.full.map(|full| full.bound)), (1, Some(LetterBound::Bytes(exact.bytes))));
        // Room is made by removing letters. A queue without letters takes one of any size.
        assert_eq!(store.remove_letters(&pipeline, LetterSelection::All).await.unwrap(), 4);
        assert_eq!(store.letter_totals(&pipeline).await.unwrap(), LetterTotals::default());
        let tiny = LetterBounds { bytes: 1, ..LetterBounds::NONE };
        let kept = store.put_letters(&pipeline, vec![named(6), named(7)], &tiny).await.unwrap();
        assert_eq!((kept.kept, kept.full.is_some()), (1, true));
        assert_eq!(all(&store).await, shown(&[(5, 1, "0123456789")]));
    }
}

#[tokio::test]
async fn evicting_bounds_take_the_oldest_and_leave_the_newest() {
    for store in TestDatabases::new().stores() {
        let pipeline = Str::from("p");
        let named = |n: u64| letter(&n.to_string(), n, b"0123456789");
        let kept = store.put_letters(&pipeline, (1..=5).map(named).collect(), &at_most(3)).await.unwrap();
        assert_eq!((kept.kept, kept.evicted, kept.full), (5, 2, None));
        let totals = store.letter_totals(&pipeline).await.unwrap();
        assert_eq!((totals.count, totals.evicted, totals.oldest), (3, 2, Some(3)));
        let each = totals.bytes / 3;
        let two = LetterBounds { bytes: 2 * each, ..EVICTING };
        store.put_letters(&pipeline, vec![named(6)], &two).await.unwrap();
        assert_eq!(all(&store).await.len(), 2);
        store.put_letters(&pipeline, vec![named(7)], &LetterBounds { bytes: 0, ..EVICTING }).await.unwrap();
        assert_eq!(all(&store).await, shown(&[(7, 1, "0123456789")]));
        let totals = store.letter_totals(&pipeline).await.unwrap();
        assert_eq!((totals.count, totals.bytes, totals.evicted), (1, each, 6));
        // More than one look at the oldest finds.
        let many = (10..3_010).map(named).collect();
        let kept = store.put_letters(&pipeline, many, &at_most(2)).await.unwrap();
        assert_eq!((kept.kept, kept.evicted), (3_000, 2_999));
        let totals = store.letter_totals(&pipeline).await.unwrap();
        assert_eq!((totals.count, totals.bytes), (2, 2 * each));
    }
}

/// One rule of both stores: age is that of the record's first failure, whatever the number of the letter, and nothing
/// older than the bound stays.
#[tokio::test]
async fn letters_that_are_too_old_go_whatever_their_number() {
    for store in TestDatabases::new().stores() {
        let pipeline = Str::from("p");
        let hour = std::time::Duration::from_secs(3600);
        let now = crate::letters::nanos(std::time::SystemTime::now());
        let old = now - 2 * hour.as_nanos() as u64;
        // A copy of an old letter that failed again in a replay has a new number.
        let letters = vec![letter("a", old, b"a"), letter("b", now, b"b"), letter("c", old + 1, b"c")];
        store.put_letters(&pipeline, letters, &LetterBounds::NONE).await.unwrap();
        assert_eq!(store.letter_totals(&pipeline).await.unwrap().oldest, Some(old));
        let aged = LetterBounds { age: Some(hour), count: 1, ..LetterBounds::NONE };
        let kept = store.put_letters(&pipeline, Vec::new(), &aged).await.unwrap();
        assert_eq!((kept.evicted, kept.full), (2, None));
        assert_eq!(all(&store).await, shown(&[(2, 1, "b")]));
        let totals = store.letter_totals(&pipeline).await.unwrap();
        assert_eq!((totals.evicted, totals.oldest), (2, Some(now)));
        // The newest goes as well.
        store.remove_letters(&pipeline, LetterSelection::All).await.unwrap();
        store.put_letters(&pipeline, vec![letter("d", old, b"d")], &LetterBounds::NONE).await.unwrap();
        store.put_letters(&pipeline, Vec::new(), &aged).await.unwrap();
        let totals = store.letter_totals(&pipeline).await.unwrap();
        assert_eq!((totals.count, totals.bytes, totals.evicted, totals.oldest), (0, 0, 3, None));
    }
}

#[tokio::test]
async fn what_failed_again_takes_the_place_of_the_letter() {
    for store in TestDatabases::new().stores() {
        let pipeline = Str::from("p");
        let names = ["a", "b", "c"];
        let letters = names.iter().map(|name| letter(name, 1, b"first")).collect();
        store.put_letters(&pipeline, letters, &LetterBounds::NONE).await.unwrap();
        let again = |name: &str, content| StoredLetter { attempts: 2, ..letter(name, 1, content) };
        let settled = vec![
            ReplayedLetter { number: 1, copies: vec![] },
            ReplayedLetter { number: 2, copies: vec![again("b", b"one"), again("b>x", b"another")] },
            ReplayedLetter { number: 9, copies: vec![again("gone", b"purged meanwhile")] },
        ];
        // Twice: a transaction whose outcome is not known is repeated.
        for _ in 0..2 {
            store.settle_letters(&pipeline, settled.clone()).await.unwrap();
            let left = [(5, 2, "purged meanwhile"), (4, 2, "another"), (3, 1, "first"), (2, 2, "one")];
            assert_eq!(all(&store).await, shown(&left));
        }
    }
}

#[tokio::test]
async fn letters_survive_a_restart() {
    for database in TestDatabases::new().durable() {
        let pipeline = Str::from("p");
        let store = Store::open(&database).unwrap();
        store.put_letters(&pipeline, vec![letter("a", 1, b"kept")], &LetterBounds::NONE).await.unwrap();
        drop(store);
        let store = Store::open(&database).unwrap();
        assert_eq!(all(&store).await, shown(&[(1, 1, "kept")]));
    }
}
