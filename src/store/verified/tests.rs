use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, Barrier},
    time::Duration,
};

use super::{Blob, Facts, Passes, Subject, Verified, Verifier, tags::BLOCK};
use crate::{
    model::{Cancel, Digest, Limits},
    store::StoreError,
};

struct Fixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
    content: Vec<u8>,
    verifier: Verifier,
}

/// An object of `len` bytes, no two blocks alike.
fn fixture(len: u64) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    let content = crate::store::conformance::content(len);
    fs::write(&path, &content).unwrap();
    // Before Linux 6.13 stamps move in steps of some milliseconds.
    std::thread::sleep(Duration::from_millis(15));
    Fixture {
        _dir: dir,
        path,
        content,
        verifier: Verifier::new(&Limits::default()).unwrap(),
    }
}

impl Fixture {
    fn blob(&self) -> Blob {
        Blob {
            file: File::open(&self.path).unwrap(),
            digest: Digest::of(&self.content),
            len: self.content.len().into(),
        }
    }

    fn verify(&self) -> Result<Verified<Blob>, StoreError> {
        self.verifier.verify(self.blob(), &Cancel::new())
    }

    fn writer(&self) -> File {
        File::options().write(true).open(&self.path).unwrap()
    }

    fn flip(&self, at: u64) {
        let byte = self.content[usize::try_from(at).unwrap()] ^ 1;
        self.writer().write_all_at(&[byte], at).unwrap();
    }

    /// What is remembered of the object, as if none of its facts had moved since: what a
    /// medium does that goes bad under the page cache.
    fn pretend_unmoved(&self) {
        let blob = self.blob();
        let now = Subject {
            facts: Facts::of(&blob.file).unwrap(),
            digest: blob.digest,
        };
        let mut table = self.verifier.table();
        let old = *table.entries.keys().next().unwrap();
        let entry = table.entries.remove(&old).unwrap();
        let turn = entry.turn;
        table.order.insert(turn, now);
        table.entries.insert(now, entry);
    }
}

/// All bytes up to the end or the cut.
fn drain(verified: &Verified<Blob>) -> (Vec<u8>, Result<(), StoreError>) {
    let mut blocks = verified.blocks(0..u64::MAX);
    let mut all = Vec::new();
    loop {
        match blocks.next() {
            Ok(Some(block)) => all.extend_from_slice(&block),
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error)),
        }
    }
}

#[test]
fn a_range_is_the_slice_of_the_content() {
    let f = fixture(2 * BLOCK + 100);
    let len = f.content.len() as u64;
    let verified = f.verify().unwrap();
    let edges = [
        0,
        1,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        2 * BLOCK,
        len - 1,
        len,
        len + 9,
    ];
    for start in edges {
        for end in edges {
            let mut blocks = verified.blocks(start..end);
            let mut got = Vec::new();
            while let Some(block) = blocks.next().unwrap() {
                assert!(block.len() as u64 <= BLOCK && !block.is_empty());
                got.extend_from_slice(&block);
            }
            let from = usize::try_from(start.min(len)).unwrap();
            let to = usize::try_from(end.min(len)).unwrap().max(from);
            assert!(got == f.content[from..to], "{start}..{end}");
        }
    }
}

#[test]
fn empty_content_is_verified_too() {
    let f = fixture(0);
    let verified = f.verify().unwrap();
    assert!(verified.is_empty());
    assert_eq!(drain(&verified).0, b"");
    fs::write(&f.path, b"x").unwrap();
    assert!(matches!(f.verify(), Err(StoreError::LengthMismatch { .. })));
}

/// Keeps I4: one bit anywhere, and no byte of any part is given.
#[test]
fn one_flipped_bit_anywhere_refuses_the_whole_object() {
    for at in [0, BLOCK - 1, BLOCK, 2 * BLOCK + 99] {
        let f = fixture(2 * BLOCK + 100);
        f.flip(at);
        assert!(
            matches!(f.verify(), Err(StoreError::DigestMismatch(_))),
            "{at}"
        );
    }
}

/// Keeps I4: damage between two blocks of a running transfer cuts it before the first wrong byte.
#[test]
fn damage_during_a_transfer_cuts_it_before_the_first_wrong_byte() {
    type Damage = fn(&Fixture);
    let cases: [(&str, Damage, u64); 5] = [
        (
            "a flip in the third block",
            |f| f.flip(2 * BLOCK),
            2 * BLOCK,
        ),
        ("a flip in the second", |f| f.flip(2 * BLOCK - 1), BLOCK),
        (
            "cut",
            |f| f.writer().set_len(2 * BLOCK + 5).unwrap(),
            2 * BLOCK,
        ),
        ("emptied", |f| f.writer().set_len(0).unwrap(), BLOCK),
        (
            "rewritten with zeros",
            |f| {
                f.writer()
                    .write_all_at(&vec![0; f.content.len()], 0)
                    .unwrap();
            },
            BLOCK,
        ),
    ];
    for (how, damage, good) in cases {
        let f = fixture(3 * BLOCK);
        let verified = f.verify().unwrap();
        let mut blocks = verified.blocks(0..u64::MAX);
        let mut got = blocks.next().unwrap().unwrap().to_vec();
        damage(&f);
        let end = loop {
            match blocks.next() {
                Ok(Some(block)) => got.extend_from_slice(&block),
                Ok(None) => panic!("{how}: ended as if whole"),
                Err(error) => break error,
            }
        };
        assert!(matches!(end, StoreError::Changed(_)), "{how}: {end:?}");
        assert!(
            matches!(blocks.next(), Err(StoreError::Changed(_))),
            "{how}: goes on"
        );
        assert_eq!(got.len() as u64, good, "{how}");
        assert!(got == f.content[..got.len()], "{how}: a wrong byte left");
    }
}

/// Keeps I4: bytes behind the content are not the content, and what was verified still is.
#[test]
fn growth_during_a_transfer_adds_nothing_to_it_and_refuses_the_next() {
    let f = fixture(2 * BLOCK);
    let verified = f.verify().unwrap();
    f.writer().write_all_at(b"more", 2 * BLOCK).unwrap();
    let (all, end) = drain(&verified);
    assert!(end.is_ok() && all == f.content);
    assert!(matches!(f.verify(), Err(StoreError::LengthMismatch { .. })));
}

/// Keeps I4: a name that leads elsewhere by now does not matter to a descriptor.
#[test]
fn a_file_put_in_its_place_during_a_transfer_is_not_read() {
    let f = fixture(2 * BLOCK);
    let verified = f.verify().unwrap();
    let other = f.path.with_extension("other");
    fs::write(&other, vec![0; f.content.len()]).unwrap();
    fs::rename(&other, &f.path).unwrap();
    let (all, end) = drain(&verified);
    assert!(end.is_ok() && all == f.content);
    assert!(matches!(f.verify(), Err(StoreError::DigestMismatch(_))));
}

#[test]
fn a_change_during_the_pass_refuses_it() {
    let f = fixture(3 * BLOCK);
    let result = f
        .verifier
        .verify_with(f.blob(), &Cancel::new(), &mut |offset| {
            if offset == BLOCK {
                f.flip(0); // behind the pass: what it read was good
            }
        });
    assert!(matches!(result, Err(StoreError::Changed(_))), "{result:?}");
}

#[test]
fn a_pass_is_reused_while_the_facts_stand_still_and_no_longer() {
    let f = fixture(BLOCK + 1);
    f.verify().unwrap();
    f.verify().unwrap();
    let passes = f.verifier.passes();
    assert_eq!((passes.hashed, passes.reused), (1, 1));
    // The same bytes written again: the facts moved, so the content is hashed again.
    f.writer().write_all_at(&f.content[..1], 0).unwrap();
    f.verify().unwrap();
    assert_eq!(f.verifier.passes().hashed, 2);
}

#[test]
fn an_old_pass_is_repeated_against_the_tags() {
    let mut f = fixture(BLOCK + 1);
    f.verifier.verified_for = Duration::ZERO;
    f.verify().unwrap();
    f.verify().unwrap();
    let expected = Passes {
        hashed: 1,
        tagged: 1,
        ..Passes::default()
    };
    assert_eq!(f.verifier.passes(), expected);
}

/// Keeps I4 where the facts tell nothing: the tags do.
#[test]
fn bytes_that_went_bad_without_moving_a_fact_are_found_by_the_tags() {
    for reused in [Duration::ZERO, Duration::from_mins(1)] {
        let mut f = fixture(3 * BLOCK);
        f.verifier.verified_for = reused;
        f.verify().unwrap();
        f.flip(BLOCK);
        f.pretend_unmoved();
        match f.verify() {
            // The pass of now reads everything: not one byte.
            Err(StoreError::DigestMismatch(_)) => assert_eq!(reused, Duration::ZERO),
            // A pass of before stands, so the block itself is the last guard.
            Ok(verified) => {
                assert_ne!(reused, Duration::ZERO);
                let (all, end) = drain(&verified);
                assert!(matches!(end, Err(StoreError::Changed(_))));
                assert!(all == f.content[..usize::try_from(BLOCK).unwrap()]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_at_once_share_one_pass() {
    let f = fixture(4 * BLOCK);
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                assert!(drain(&f.verify().unwrap()).1.is_ok());
            });
        }
    });
    let passes = f.verifier.passes();
    assert_eq!(passes.hashed, 1, "{passes:?}");
    assert_eq!(passes.joined + passes.reused, 7, "{passes:?}");
}

#[test]
fn a_waiting_caller_takes_over_when_the_pass_is_cancelled() {
    let f = fixture(2 * BLOCK);
    let first = Cancel::new();
    std::thread::scope(|scope| {
        let waiter = &std::sync::Mutex::new(None);
        let result = f.verifier.verify_with(f.blob(), &first, &mut |offset| {
            if offset == 0 {
                let second = scope.spawn(|| f.verify().map(|v| drain(&v).0));
                *waiter.lock().unwrap() = Some(second);
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
            first.fire();
        });
        assert!(matches!(result, Err(StoreError::Cancelled)), "{result:?}");
        let second = waiter.lock().unwrap().take().unwrap();
        assert!(second.join().unwrap().unwrap() == f.content);
    });
}

#[test]
fn a_waiting_caller_can_be_cancelled_and_does_not_wait_for_ever() {
    let mut f = fixture(BLOCK);
    f.verifier.patience = Duration::from_millis(60);
    let gone = Cancel::new();
    gone.fire();
    let (mut cancelled, mut busy) = (None, None);
    let result = f.verifier.verify_with(f.blob(), &Cancel::new(), &mut |_| {
        cancelled = Some(f.verifier.verify(f.blob(), &gone));
        busy = Some(f.verify());
    });
    assert!(result.is_ok());
    assert!(matches!(cancelled, Some(Err(StoreError::Cancelled))));
    assert!(matches!(busy, Some(Err(StoreError::Busy(_)))));
}

/// Keeps I4 and I11: a client that has gone costs at most one more block.
#[test]
fn a_cancelled_pass_stops_at_the_next_block() {
    let f = fixture(4 * BLOCK);
    let cancel = Cancel::new();
    let mut seen = Vec::new();
    let result = f.verifier.verify_with(f.blob(), &cancel, &mut |offset| {
        seen.push(offset);
        if offset == BLOCK {
            cancel.fire();
        }
    });
    assert!(matches!(result, Err(StoreError::Cancelled)));
    assert_eq!(seen, [0, BLOCK]);
}

/// Keeps I11.
#[test]
fn what_is_remembered_stays_within_its_budget() {
    let mut f = fixture(3 * BLOCK);
    f.verifier.budget = 1000;
    for i in 0..20 {
        f.content[0] = i;
        fs::write(&f.path, &f.content).unwrap();
        f.verify().unwrap();
        let table = f.verifier.table();
        assert!(table.cost <= 1000, "{}", table.cost);
        assert_eq!(table.entries.len(), table.order.len());
        assert!(table.flights.is_empty());
    }
    let table = f.verifier.table();
    assert_eq!(table.entries.len(), 3);
    let cost: usize = table.entries.values().map(|e| e.tags.cost()).sum();
    assert_eq!(cost, table.cost);
}

#[test]
fn the_length_of_blocks_bounds_the_tags() {
    const GIB: u64 = 1 << 30;
    for (len, block) in [
        (0, BLOCK),
        (GIB, BLOCK),
        (16 * GIB, BLOCK),
        (16 * GIB + 1, 2 * BLOCK),
        (256 * GIB, 16 * BLOCK),
        (u64::MAX, 16 * BLOCK),
    ] {
        assert_eq!(super::block_for(len), block, "{len}");
    }
}

#[test]
fn a_pass_for_one_digest_stands_for_no_other() {
    let f = fixture(10);
    f.verify().unwrap();
    let forged = Blob {
        digest: Digest::of(b"another"),
        ..f.blob()
    };
    let result = f.verifier.verify(forged, &Cancel::new());
    assert!(matches!(result, Err(StoreError::DigestMismatch(_))));
}

#[test]
fn verified_content_can_be_sent_from_any_thread() {
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Verified<Blob>>();
    sendable::<Arc<Verifier>>();
    sendable::<super::Blocks>();
}
