use std::{collections::BTreeMap, collections::HashMap, time::Duration};

use super::{
    AskError, Card, Cause, DecideError, Outcome, Question, Reply, Request, presence::Presence,
    question, tombs::Tombs,
};
use crate::model::{
    InteractionHandle, Moment, PrincipalId, Seq, SessionHandle, StreamHandle, Timestamp,
};

/// The longest note with a rejection, in bytes.
const MAX_NOTE: usize = 500;

/// How a bridge is set up. Off unless it is switched on.
#[derive(Clone, Debug)]
pub struct BridgeOptions {
    /// Whether interactions are put to people at all.
    pub enabled: bool,
    /// This host, as a trusted caller states it.
    pub host: String,
    /// This run of the service: nothing of another run is ever taken for live.
    pub generation: u64,
    /// The language people read.
    pub locale: String,
    /// How long an approval waits.
    pub life: Duration,
    /// The most interactions of one session that wait.
    pub per_session: usize,
    /// The most interactions that wait.
    pub in_all: usize,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            host: String::new(),
            generation: 0,
            locale: "en".to_owned(),
            life: Duration::from_mins(2),
            per_session: 64,
            in_all: 1024,
        }
    }
}

/// Whether a session asks people at all. Never is no grant: what nobody is asked, nobody allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It does.
    Ask,
    /// It does not.
    #[default]
    Never,
}

impl Policy {
    /// The policy's word in the journal.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Never => "never",
        }
    }
}

/// A turn: its number, and where in the log it starts. Equal numbers are not equal turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TurnMark {
    /// The number its start states.
    pub number: u64,
    /// The seq of its start.
    pub start: Seq,
}

/// What is true of a session when it asks, as the service found it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The exact agent that asks: another one is another agent, whatever it is called.
    pub agent: String,
    /// The open turn.
    pub turn: Option<TurnMark>,
    /// The policy in force.
    pub policy: Policy,
    /// Who may decide.
    pub deciders: Vec<PrincipalId>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matter {
    /// One action, once.
    Approval(Card),
    /// A form.
    Questions(Vec<Question>),
}

impl Matter {
    /// What people who read `locale` are shown of a request.
    ///
    /// # Errors
    /// [`AskError::Refused`] when it breaks a rule.
    pub fn approval(request: &Request, locale: &str) -> Result<Self, AskError> {
        Card::of(request, locale).map(Self::Approval)
    }

    /// A form.
    ///
    /// # Errors
    /// [`AskError::Refused`] when it breaks a rule.
    pub fn questions(questions: Vec<Question>) -> Result<Self, AskError> {
        question::admit(&questions)?;
        Ok(Self::Questions(questions))
    }

    /// `approval` or `question`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Approval(_) => "approval",
            Self::Questions(_) => "question",
        }
    }
}

/// An interaction to be put to people.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Its name, drawn by the caller.
    pub id: InteractionHandle,
    /// Its id in the audit.
    pub audit: String,
    /// Its session.
    pub session: SessionHandle,
    /// What is true now.
    pub facts: Facts,
    /// What is asked.
    pub matter: Matter,
    /// A shorter life than usual.
    pub life: Option<Duration>,
    /// The agent belongs to another agent: it may not reach a person.
    pub delegated: bool,
    /// The one who asks has taken it back already.
    pub aborted: bool,
    /// The time of day, for showing when it ends.
    pub at: Timestamp,
}

/// What became of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Putting {
    /// It waits for an answer.
    Pending(Box<Pending>),
    /// It settled at once.
    Settled(Outcome, Cause),
}

/// An interaction that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its name.
    pub id: InteractionHandle,
    /// Its id in the audit.
    pub audit: String,
    /// Its session.
    pub session: SessionHandle,
    /// The agent that asked.
    pub agent: String,
    /// The turn it belongs to.
    pub turn: Option<TurnMark>,
    /// What is asked.
    pub matter: Matter,
    /// When it ends, by the time of day; for showing alone.
    pub expires_at: Option<Timestamp>,
    ends: Option<Moment>,
}

/// The identity facts an answer repeats. They are correlation, not credentials.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The session of the address, as the caller was granted it.
    pub session: SessionHandle,
    /// The interaction of the address.
    pub id: InteractionHandle,
    /// Who answers.
    pub who: PrincipalId,
    /// The run, as the answer has it.
    pub generation: u64,
    /// The host, as the answer has it.
    pub host: String,
    /// The session, as the answer has it.
    pub named_session: SessionHandle,
    /// The interaction, as the answer has it.
    pub named_id: InteractionHandle,
    /// The audit id, where the answer has it.
    pub audit: Option<String>,
    /// The turn, as the answer has it.
    pub turn: Option<TurnMark>,
    /// The answer.
    pub answer: Answer,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// One of the choices, and a note with a rejection.
    Choice(String, Option<String>),
    /// A form, filled in.
    Replies(Vec<Reply>),
    /// A form, handed back.
    Cancel,
}

/// An interaction that ended; each ends once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its name.
    pub id: InteractionHandle,
    /// Its id in the audit.
    pub audit: String,
    /// Its session.
    pub session: SessionHandle,
    /// `approval` or `question`.
    pub kind: &'static str,
    /// Whether anybody was shown it.
    pub was_pending: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// What ended it.
    pub cause: Cause,
    /// Who answered.
    pub who: Option<PrincipalId>,
    /// What was filled in.
    pub replies: Vec<Reply>,
    /// What a person said with a rejection.
    pub note: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Room {
    facts: Facts,
    /// In the order they came.
    items: BTreeMap<u64, Pending>,
}

/// The interactions that wait, and all that decides them. Plain functions under `&mut`: nothing can
/// come between a check and its settlement.
#[derive(Clone, Debug)]
pub struct Bridge {
    options: BridgeOptions,
    rooms: HashMap<SessionHandle, Room>,
    presence: Presence,
    tombs: Tombs,
    settled: Vec<Settled>,
    waiting: usize,
    counter: u64,
    disposed: bool,
}

impl Bridge {
    /// A bridge with nothing pending: no history revives anything.
    #[must_use]
    pub fn new(options: BridgeOptions) -> Self {
        Self {
            options,
            rooms: HashMap::new(),
            presence: Presence::default(),
            tombs: Tombs::default(),
            settled: Vec::new(),
            waiting: 0,
            counter: 0,
            disposed: false,
        }
    }

    /// How it is set up.
    #[must_use]
    pub const fn options(&self) -> &BridgeOptions {
        &self.options
    }

    /// What has settled since the last time, in order.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// Whether a decision by one of `deciders` would reach anything.
    #[must_use]
    pub fn interactive(&self, deciders: &[PrincipalId], now: Moment) -> bool {
        self.options.enabled && !self.disposed && self.presence.any(deciders, now)
    }

    /// Whether anything waits.
    #[must_use]
    pub fn has_any(&self) -> bool {
        !self.rooms.is_empty()
    }

    /// What of the session waits, in the order it came.
    pub fn pending(&mut self, session: SessionHandle, now: Moment) -> Vec<Pending> {
        self.lapse(now);
        self.rooms
            .get(&session)
            .map(|room| room.items.values().cloned().collect())
            .unwrap_or_default()
    }

    /// Puts an interaction to people, or settles it at once and says why.
    pub fn ask(&mut self, opening: Opening, now: Moment) -> Putting {
        self.lapse(now);
        self.admit_facts(opening.session, opening.facts.clone(), now);
        let cause = self.obstacle(&opening, now);
        let life = opening
            .life
            .unwrap_or(self.options.life)
            .min(self.options.life);
        let mortal = matches!(opening.matter, Matter::Approval(_));
        let pending = Pending {
            id: opening.id,
            audit: opening.audit,
            session: opening.session,
            agent: opening.facts.agent,
            turn: opening.facts.turn,
            matter: opening.matter,
            expires_at: mortal.then(|| opening.at.after(life)),
            ends: mortal.then(|| now.after(life)),
        };
        if let Some(cause) = cause {
            let outcome = cause.outcome();
            self.retire(&pending, outcome, cause, now, |settled| {
                settled.was_pending = false;
            });
            self.sweep(opening.session);
            return Putting::Settled(outcome, cause);
        }
        self.counter = self.counter.saturating_add(1);
        self.waiting = self.waiting.saturating_add(1);
        let room = self.rooms.entry(opening.session).or_default();
        room.items.insert(self.counter, pending.clone());
        Putting::Pending(Box::new(pending))
    }

    /// Why the opening reaches nobody.
    fn obstacle(&self, opening: &Opening, now: Moment) -> Option<Cause> {
        let approval = matches!(opening.matter, Matter::Approval(_));
        let facts = &opening.facts;
        let room = self
            .rooms
            .get(&opening.session)
            .map_or(0, |room| room.items.len());
        if opening.aborted {
            Some(Cause::Aborted)
        } else if approval && (facts.policy == Policy::Never || opening.delegated) {
            // A child of another agent never reaches a person.
            Some(Cause::PolicyNever)
        } else if self.disposed {
            Some(Cause::Disposed)
        } else if !self.options.enabled {
            Some(Cause::NotInteractive)
        } else if approval && !self.presence.any(&facts.deciders, now) {
            Some(Cause::Presence)
        } else if room >= self.options.per_session || self.waiting >= self.options.in_all {
            Some(Cause::Full)
        } else {
            None
        }
    }

    /// Takes what is true now, and what it ends.
    fn admit_facts(&mut self, session: SessionHandle, facts: Facts, now: Moment) {
        let room = self.rooms.entry(session).or_default();
        room.facts = facts;
        self.reconsider(session, now);
    }

    /// Ends what no longer goes with the session's facts.
    fn reconsider(&mut self, session: SessionHandle, now: Moment) {
        let Some(facts) = self.rooms.get(&session).map(|room| room.facts.clone()) else {
            return;
        };
        self.retire_where(session, now, |item| {
            if item.agent != facts.agent {
                Some(Cause::AgentReplaced)
            } else if item.turn != facts.turn {
                Some(Cause::TurnEnded)
            } else if facts.policy == Policy::Never && matches!(item.matter, Matter::Approval(_)) {
                Some(Cause::PolicyNever)
            } else {
                None
            }
        });
    }

    /// The session's turn is this one now; none when it ended.
    pub fn turn_moved(&mut self, session: SessionHandle, turn: Option<TurnMark>, now: Moment) {
        self.lapse(now);
        if let Some(room) = self.rooms.get_mut(&session) {
            room.facts.turn = turn;
        }
        self.reconsider(session, now);
        self.sweep(session);
    }

    /// The session's agent is this one now.
    pub fn agent_replaced(&mut self, session: SessionHandle, agent: &str, now: Moment) {
        self.lapse(now);
        if let Some(room) = self.rooms.get_mut(&session) {
            agent.clone_into(&mut room.facts.agent);
        }
        self.reconsider(session, now);
        self.sweep(session);
    }

    /// The session's policy is this one now.
    pub fn policy_changed(&mut self, session: SessionHandle, policy: Policy, now: Moment) {
        self.lapse(now);
        if let Some(room) = self.rooms.get_mut(&session) {
            room.facts.policy = policy;
        }
        self.reconsider(session, now);
        self.sweep(session);
    }

    /// Takes one interaction back, for the one who asked.
    ///
    /// # Errors
    /// Why there was nothing to take back.
    pub fn abort(
        &mut self,
        session: SessionHandle,
        id: InteractionHandle,
        now: Moment,
    ) -> Result<(), DecideError> {
        self.lapse(now);
        let before = self.settled.len();
        self.retire_where(session, now, |item| {
            (item.id == id).then_some(Cause::Aborted)
        });
        self.sweep(session);
        if self.settled.len() == before {
            return Err(self.tombs.late(id, session));
        }
        Ok(())
    }

    /// Takes the session's interactions back.
    pub fn disconnect(&mut self, session: SessionHandle, now: Moment) {
        self.retire_where(session, now, |_item| Some(Cause::Disconnected));
        self.sweep(session);
    }

    /// Takes everything back, and nothing more in.
    pub fn dispose(&mut self, now: Moment) {
        self.disposed = true;
        for session in self.sessions() {
            self.retire_where(session, now, |_item| Some(Cause::Disposed));
            self.sweep(session);
        }
    }

    /// A stream was opened; that alone makes nobody present.
    pub fn opened(&mut self, stream: StreamHandle, who: PrincipalId) {
        self.presence.opened(stream, who);
    }

    /// A stream's reader has shown that it reads; whether there is such a stream of its.
    pub fn acknowledged(&mut self, stream: StreamHandle, who: PrincipalId, now: Moment) -> bool {
        self.lapse(now);
        self.presence.acknowledge(stream, who, now)
    }

    /// A stream ended.
    pub fn closed(&mut self, stream: StreamHandle, now: Moment) {
        self.presence.closed(stream);
        self.lapse(now);
    }

    /// Ends what time has ended.
    pub fn tick(&mut self, now: Moment) {
        self.lapse(now);
    }

    /// Settles one interaction by an answer, if it is still live and the answer is for exactly it.
    ///
    /// # Errors
    /// [`DecideError`]; nothing was consumed then.
    pub fn decide(&mut self, decision: &Decision, now: Moment) -> Result<Outcome, DecideError> {
        self.lapse(now);
        if decision.generation != self.options.generation {
            return Err(DecideError::StaleGeneration);
        }
        if decision.host != self.options.host {
            return Err(DecideError::HostMismatch);
        }
        if decision.named_session != decision.session {
            return Err(DecideError::ForeignSession);
        }
        if decision.named_id != decision.id {
            return Err(DecideError::Correlation);
        }
        if !self.options.enabled {
            return Err(DecideError::NotInteractive);
        }
        let late = self.tombs.late(decision.id, decision.session);
        let room = self.rooms.get_mut(&decision.session).ok_or(late)?;
        let mut items = room.items.iter();
        let (&order, item) = items.find(|(_, item)| item.id == decision.id).ok_or(late)?;
        let outcome = admits(item, &room.facts, decision)?;
        if matches!(item.matter, Matter::Approval(_))
            && !self.presence.any(&room.facts.deciders, now)
        {
            return Err(DecideError::NotInteractive);
        }
        // One shot: who comes next finds nothing.
        if let Some(item) = room.items.remove(&order) {
            self.waiting = self.waiting.saturating_sub(1);
            self.retire(&item, outcome, Cause::Decided, now, |settled| {
                settled.who = Some(decision.who);
                match &decision.answer {
                    Answer::Replies(replies) => settled.replies.clone_from(replies),
                    Answer::Choice(_, note) => settled.note.clone_from(note),
                    Answer::Cancel => {}
                }
            });
        }
        self.sweep(decision.session);
        Ok(outcome)
    }

    /// Ends what is past its time, and approvals nobody is there to decide.
    fn lapse(&mut self, now: Moment) {
        for session in self.sessions() {
            let Some(room) = self.rooms.get(&session) else {
                continue;
            };
            let present = self.presence.any(&room.facts.deciders, now);
            self.retire_where(session, now, |item| {
                if item.ends.is_some_and(|end| now >= end) {
                    Some(Cause::Expired)
                } else if !present && matches!(item.matter, Matter::Approval(_)) {
                    Some(Cause::Presence)
                } else {
                    None
                }
            });
            self.sweep(session);
        }
    }

    fn sessions(&self) -> Vec<SessionHandle> {
        self.rooms.keys().copied().collect()
    }

    fn retire_where(
        &mut self,
        session: SessionHandle,
        now: Moment,
        ends: impl Fn(&Pending) -> Option<Cause>,
    ) {
        let Some(room) = self.rooms.get_mut(&session) else {
            return;
        };
        let ended: Vec<(u64, Cause)> = room
            .items
            .iter()
            .filter_map(|(&order, item)| Some((order, ends(item)?)))
            .collect();
        let ended: Vec<(Pending, Cause)> = ended
            .into_iter()
            .filter_map(|(order, cause)| Some((room.items.remove(&order)?, cause)))
            .collect();
        for (item, cause) in ended {
            self.waiting = self.waiting.saturating_sub(1);
            self.retire(&item, cause.outcome(), cause, now, |_settled| {});
        }
    }

    fn retire(
        &mut self,
        item: &Pending,
        outcome: Outcome,
        cause: Cause,
        now: Moment,
        fill: impl FnOnce(&mut Settled),
    ) {
        self.tombs.add(item.id, item.session, outcome, cause, now);
        let mut settled = Settled {
            id: item.id,
            audit: item.audit.clone(),
            session: item.session,
            kind: item.matter.kind(),
            was_pending: true,
            outcome,
            cause,
            who: None,
            replies: Vec::new(),
            note: None,
        };
        fill(&mut settled);
        self.settled.push(settled);
    }

    /// Forgets a session of which nothing waits.
    fn sweep(&mut self, session: SessionHandle) {
        if self
            .rooms
            .get(&session)
            .is_some_and(|room| room.items.is_empty())
        {
            self.rooms.remove(&session);
        }
    }
}

/// Whether the answer is for exactly this item as things are now.
fn admits(item: &Pending, facts: &Facts, decision: &Decision) -> Result<Outcome, DecideError> {
    if decision
        .audit
        .as_ref()
        .is_some_and(|audit| *audit != item.audit)
    {
        return Err(DecideError::Correlation);
    }
    if item.agent != facts.agent {
        return Err(DecideError::AgentReplaced);
    }
    if item.turn != decision.turn || item.turn != facts.turn {
        return Err(DecideError::StaleTurn);
    }
    match (&item.matter, &decision.answer) {
        (Matter::Approval(card), Answer::Choice(choice, note)) => {
            if facts.policy == Policy::Never {
                return Err(DecideError::PolicyNever);
            }
            if note.as_ref().is_some_and(|note| note.len() > MAX_NOTE) {
                return Err(DecideError::BadAnswer("a note has at most 500 bytes"));
            }
            match choice.as_str() {
                "allowed-once" if note.is_some() => {
                    Err(DecideError::BadAnswer("a note goes with a rejection"))
                }
                "allowed-once" if card.can_allow => Ok(Outcome::AllowedOnce),
                "allowed-once" => Err(DecideError::DetailsUnavailable),
                "rejected" => Ok(Outcome::Rejected),
                _ => Err(DecideError::NotOffered),
            }
        }
        (Matter::Approval(_), Answer::Replies(_) | Answer::Cancel) => {
            Err(DecideError::BadAnswer("an approval takes a decision"))
        }
        (Matter::Questions(_), Answer::Choice(..)) => {
            Err(DecideError::BadAnswer("a form takes answers"))
        }
        (Matter::Questions(form), Answer::Replies(replies)) => {
            question::fits(form, replies).map(|()| Outcome::Answered)
        }
        (Matter::Questions(_), Answer::Cancel) => Ok(Outcome::Cancelled),
    }
}
