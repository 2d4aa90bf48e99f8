//! What was taken since the last orderly stop is looked for at start, before anything is served.
//!
//! Promises: content that went missing in a crash of the medium is named in the log at once, not at
//! its next download. Leaves to others: whether its bytes are right, which every download checks
//! before it gives any (`store::verified`).

use rusqlite::OptionalExtension as _;

use crate::{
    control::{Control, ControlError},
    model::{AttachmentId, AttachmentKind, AttachmentRef, ByteCount, Digest},
    store::Objects,
};

/// Until when everything taken was in its place, in milliseconds since the epoch.
const KEY: &str = "settled_at";
/// How many objects are asked for at once.
const STEP: i64 = 1024;
/// How many lost objects are named; the rest are counted.
const NAMED: u64 = 100;

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Objects that are there with their length.
    pub(super) good: u64,
    /// Objects that are not.
    pub(super) lost: u64,
}

/// Looks for every object recorded since the last [`settle`]: that it is there, a plain file of its
/// length. After an orderly stop there is none. Blocks.
pub(super) fn look(control: &Control, objects: &dyn Objects) -> Result<Found, ControlError> {
    let since = control.read(|conn| {
        let kept = conn
            .query_row("SELECT value FROM meta WHERE key = ?1", [KEY], |row| {
                row.get::<_, String>(0)
            })
            .optional()?;
        match kept {
            None => Ok(i64::MIN),
            Some(text) => text
                .parse()
                .map_err(|_not_ours| ControlError::Corrupt(format!("meta.{KEY}").into())),
        }
    })?;
    let mut found = Found::default();
    let mut after = Vec::new();
    loop {
        let step = recorded(control, since, &after)?;
        let Some((last, _)) = step.last() else {
            break;
        };
        after = last.as_bytes().to_vec();
        for (digest, bytes) in step {
            let reference = AttachmentRef {
                id: AttachmentId::new(digest),
                name: None,
                bytes,
                kind: AttachmentKind::File,
            };
            match objects.open(&reference) {
                Ok(_there) => found.good += 1,
                Err(error) => {
                    found.lost += 1;
                    if found.lost <= NAMED {
                        tracing::error!(id = %reference.id, %error, "content is lost");
                    }
                }
            }
        }
    }
    if found.lost > 0 {
        tracing::error!(
            lost = found.lost,
            good = found.good,
            "content taken since the last orderly stop is not in its place: restore it from a \
             backup, or upload it again, which heals it"
        );
    }
    Ok(found)
}

/// The next objects after a digest that were recorded since a time, in the order of their digests.
fn recorded(
    control: &Control,
    since: i64,
    after: &[u8],
) -> Result<Vec<(Digest, ByteCount)>, ControlError> {
    control.read(|conn| {
        let mut all = conn.prepare_cached(
            "SELECT digest, bytes FROM objects WHERE digest > ?1 AND created_at >= ?2
             ORDER BY digest LIMIT ?3",
        )?;
        let rows = all.query_map((after, since, STEP), |row| {
            Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, i64>(1)?))
        })?;
        rows.map(|row| {
            let (digest, bytes) = row?;
            let bytes = u64::try_from(bytes)
                .map_err(|_negative| ControlError::Corrupt("objects.bytes".into()))?;
            Ok((Digest::from_bytes(digest), ByteCount::new(bytes)))
        })
        .collect()
    })
}

/// Remembers that everything recorded until now is in its place. For an orderly stop. Blocks until
/// that is durable.
pub(super) fn settle(control: &Control) -> Result<(), ControlError> {
    let now = control.now().as_millis().to_string();
    control.write(move |tx| {
        tx.execute(
            "INSERT INTO meta (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [KEY, &now],
        )?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Arc};

    use super::{Found, STEP, look, settle};
    use crate::{
        control::{Control, ControlError},
        model::{AttachmentRef, Digest, SystemClock},
        store::{Blob, Objects, StoreError},
    };

    /// Holds every object but those whose digest starts with an odd octet.
    #[derive(Debug)]
    struct Half;

    impl Objects for Half {
        fn open(&self, reference: &AttachmentRef) -> Result<Blob, StoreError> {
            let digest = reference.id.digest();
            if digest.as_bytes()[0] % 2 == 1 {
                return Err(StoreError::NotFound(digest));
            }
            Ok(Blob {
                file: File::from(
                    rustix::fs::memfd_create("object", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
                ),
                digest,
                len: reference.bytes,
            })
        }
    }

    fn record(control: &Control, from: u32, count: u32) {
        let at = control.now().as_millis();
        control
            .write(move |tx| {
                for n in from..from + count {
                    let mut digest = [0; 32];
                    digest[0] = u8::try_from(n % 256).unwrap();
                    digest[1..5].copy_from_slice(&n.to_be_bytes());
                    let digest = Digest::from_bytes(digest);
                    tx.execute(
                        "INSERT INTO objects (digest, bytes, created_at) VALUES (?1, 3, ?2)",
                        (digest.as_bytes(), at),
                    )?;
                }
                Ok::<_, ControlError>(())
            })
            .unwrap();
    }

    #[test]
    fn what_was_taken_since_an_orderly_stop_is_looked_for_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let dir = rustix::fs::open(
            dir.path(),
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let control = Control::open_inline(dir, Arc::new(SystemClock)).unwrap();
        assert_eq!(look(&control, &Half).unwrap(), Found::default());
        let many = u32::try_from(2 * STEP).unwrap();
        record(&control, 0, many);
        let all = Found {
            good: u64::from(many / 2),
            lost: u64::from(many / 2),
        };
        assert_eq!(look(&control, &Half).unwrap(), all);
        settle(&control).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        record(&control, many, 3);
        let found = look(&control, &Half).unwrap();
        assert_eq!((found.good, found.lost), (2, 1));
    }
}
