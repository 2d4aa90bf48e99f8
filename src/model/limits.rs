use std::time::Duration;

use super::ByteCount;

/// Every bound of the service in one place (I11). Configuration may lower or raise most of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest attachment or deliverable.
    pub file: ByteCount,
    /// What all attachments of one session may sum up to.
    pub session_bytes: ByteCount,
    /// What must stay free on the data filesystem; uploads beyond it are refused (507).
    pub free_reserve: ByteCount,
    /// The largest JSON request body.
    pub json_body: ByteCount,
    /// The largest request head.
    pub request_head: ByteCount,
    /// The most header fields of a request.
    pub request_fields: usize,
    /// How long a client may take over a request's head, counted from when it is expected.
    pub head_deadline: Duration,
    /// How long a connection may make no progress while a body is owed, in either direction.
    pub stall: Duration,
    /// The least bytes a second of a transfer, averaged over the time the peer was waited for, once
    /// that is longer than `stall`; zero for none.
    pub minimum_rate: ByteCount,
    /// The most connections held at once.
    pub connections: usize,
    /// The most of them from one address: one IPv4 address, or 64 bits of an IPv6 address.
    pub connections_per_address: usize,
    /// The most requests of one principal served at once.
    pub requests_per_principal: usize,
    /// The longest a ticket can be asked to last.
    pub ticket_life: Duration,
    /// How long past its end a ticket serves those who go on with a download.
    pub ticket_grace: Duration,
    /// The most tickets one principal may have.
    pub tickets_per_principal: usize,
    /// How long a release waits for a decision.
    pub release_life: Duration,
    /// The most releases of one session that wait at once.
    pub releases_waiting: usize,
    /// How long a shutdown waits for transfers.
    pub drain: Duration,
    /// How long a whole-content pass may be reused (I4).
    pub verified_for: Duration,
    /// Limits of the journal.
    pub journal: JournalLimits,
}

/// Bounds on what a journal accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalLimits {
    /// The largest event, as JSON text.
    pub event: ByteCount,
    /// The most events in one append.
    pub events_per_append: usize,
    /// The most events in one history page.
    pub events_per_page: usize,
    /// How deep an event's JSON may nest.
    pub depth: usize,
    /// The most references one event may carry.
    pub references_per_event: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file: ByteCount::gib(1),
            session_bytes: ByteCount::gib(64),
            free_reserve: ByteCount::mib(512),
            json_body: ByteCount::mib(4),
            request_head: ByteCount::kib(32),
            request_fields: 100,
            head_deadline: Duration::from_secs(30),
            stall: Duration::from_mins(1),
            minimum_rate: ByteCount::ZERO,
            connections: 1024,
            connections_per_address: 512,
            requests_per_principal: 64,
            ticket_life: Duration::from_hours(24),
            ticket_grace: Duration::from_hours(1),
            tickets_per_principal: 256,
            release_life: Duration::from_hours(24),
            releases_waiting: 64,
            drain: Duration::from_secs(30),
            verified_for: Duration::from_mins(1),
            journal: JournalLimits::default(),
        }
    }
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self {
            event: ByteCount::mib(1),
            events_per_append: 256,
            events_per_page: 200,
            depth: 64,
            references_per_event: 256,
        }
    }
}
