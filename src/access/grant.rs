use std::ops::Deref;

use crate::{
    journal::Declared,
    model::{LogGeneration, Seq, SessionHandle},
};

/// A passed check: the caller may do with the `T` what the `T` says.
///
/// Only `access` makes one. It cannot be copied, made from a default, or read from a message; who
/// holds it holds the decision, for as long as one request lasts.
#[derive(Debug)]
pub struct Grant<T>(T);

impl<T> Grant<T> {
    /// For the rules of this module alone: states that the check was passed.
    pub(super) const fn passed(of: T) -> Self {
        Self(of)
    }
}

impl<T> Deref for Grant<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Declares what a grant on a session is for.
macro_rules! session_rights {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(SessionHandle);

        impl $name {
            pub(super) const fn new(session: SessionHandle) -> Self {
                Self(session)
            }

            /// The session.
            #[must_use]
            pub const fn session(&self) -> SessionHandle {
                self.0
            }
        }
    )*};
}

session_rights! {
    /// To read a session: its snapshot, its history, what it refers to.
    ReadSession;
    /// To add content that events of the session may then refer to.
    UploadToSession;
    /// To append events to the session.
    AppendToSession;
    /// To submit a message to the session.
    SubmitToSession;
    /// To put something to the people of the session, and to read what they answered.
    AskInSession;
    /// To answer what is put to the people of the session, and to choose what it runs under.
    DecideInSession;
    /// To remove the session with everything in it.
    RemoveSession;
    /// To say what leaves the session: to ask for releases, and to decide on them.
    ReleaseFromSession;
}

/// To a declared file of a session: to what its log says of it, and nothing more.
#[derive(Debug)]
pub struct DeliverableRef {
    session: SessionHandle,
    cwd: Option<String>,
    declared: Declared,
}

impl DeliverableRef {
    pub(super) const fn new(
        session: SessionHandle,
        cwd: Option<String>,
        declared: Declared,
    ) -> Self {
        Self {
            session,
            cwd,
            declared,
        }
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> SessionHandle {
        self.session
    }

    /// The directory its declared paths are relative to.
    #[must_use]
    pub fn cwd(&self) -> Option<&str> {
        self.cwd.as_deref()
    }

    /// The numbering of the event.
    #[must_use]
    pub const fn log_generation(&self) -> LogGeneration {
        self.declared.generation
    }

    /// The event.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.declared.seq
    }

    /// The position in the event.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.declared.index
    }

    /// The declared path, as the event has it; a claim.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.declared.presented.path
    }
}
