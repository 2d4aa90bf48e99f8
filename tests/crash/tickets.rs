//! A ticket's uses under kills.

use std::{path::Path, sync::Arc, time::Duration};

use holdfast::{
    access::{Access, Principal, PrincipalKind, PrincipalName, Terms},
    control::ControlError,
    journal::{Journal as _, Source as _},
    model::{Limits, SystemClock, Timestamp},
};

use crate::{
    session::{self, HANDLE, header, message, open, shared, upload},
    skip::skipped,
    store::scratch,
    trace::{self, Program, journal_tool},
};

/// The session of the tests with one event, owned by a principal of ours, and access to it.
fn access(dir: &Path) -> (Access, Principal) {
    let control = Arc::new(open(dir).unwrap());
    let journal = Arc::new(shared(Arc::clone(&control)));
    let access = Access::new(control, journal.clone(), Arc::new(SystemClock));
    let name = PrincipalName::parse("owner").unwrap();
    if let Ok(owner) = access.principal_named(&name) {
        return (access, owner);
    }
    let owner = access.create_principal(PrincipalKind::User, name).unwrap();
    let header = holdfast::journal::NewSession {
        owners: vec![owner.id],
        ..header()
    };
    journal.create(header).unwrap();
    let at = Timestamp::from_millis(0);
    journal.record_upload(HANDLE, &upload(0), at).unwrap();
    let next = journal.session(HANDLE).unwrap().next_seq;
    journal.append(HANDLE, message(0), Some(next)).unwrap();
    (access, owner)
}

/// The secret of a new ticket of one use.
fn ticket(dir: &Path) -> String {
    let (access, owner) = access(dir);
    let session = access.read_session(&owner, HANDLE).unwrap();
    let reference = access
        .attachment(&session, session::upload(0).id, None)
        .unwrap();
    let terms = Terms {
        life: Duration::from_hours(1),
        uses: 1,
        most: 100_000,
        grace: Limits::default().ticket_grace,
    };
    let made = access.issue_ticket(&owner, None, &session, &reference, None, terms);
    made.unwrap().0.reveal()
}

/// How many uses were opened altogether.
fn opened(dir: &Path) -> i64 {
    let control = open(dir).expect("a restart needs no help");
    control.standing().expect("a restart needs no help");
    let rows = control.read(|conn| {
        conn.query_row("SELECT count(*) FROM ticket_uses", [], |row| row.get(0))
            .map_err(ControlError::from)
    });
    rows.unwrap()
}

fn redeem(dir: &Path, secret: &str) -> Program {
    journal_tool(["redeem", dir.to_str().unwrap(), secret])
}

/// Keeps I12: `kill -9` at every system call of an answer by ticket that changes something. No byte
/// leaves before the use is on the medium, and a one-use ticket is never used twice.
#[test]
fn a_one_use_ticket_killed_at_any_change_is_used_at_most_once() {
    if let Some(why) = trace::unavailable() {
        return skipped(8, "kill points of a ticket's use", why);
    }
    let dir = scratch();
    let counting = redeem(dir.path(), &ticket(dir.path())).trace();
    assert!(
        counting.success && counting.stdout == "sent\n",
        "{counting:?}"
    );
    let points = counting.changes();
    assert!(points.len() >= 8, "too few to be a use: {points:?}");
    let (mut killed, mut used, mut unused) = (0, 0, 0);
    for point in &points {
        let secret = ticket(dir.path());
        let before = opened(dir.path());
        let run = redeem(dir.path(), &secret).kill_at(point);
        killed += usize::from(run.killed);
        let now = opened(dir.path());
        let sent = i64::from(run.stdout.contains("sent"));
        assert!(
            now - before >= sent,
            "a byte left and no use is there: {point:?}"
        );
        let again = redeem(dir.path(), &secret).trace();
        let sent_again = i64::from(again.stdout.contains("sent"));
        assert!(sent + sent_again <= 1, "used twice: {point:?}");
        assert_eq!(opened(dir.path()) - before, 1, "{point:?}");
        assert_eq!(sent_again, 1 - (now - before), "{point:?}");
        used += now - before;
        unused += sent_again;
    }
    assert!(killed * 10 >= points.len() * 9, "{killed} of {points:?}");
    assert!(used > 0 && unused > 0, "kills on both sides of the commit");
}
