use std::ops::Deref;

use crate::model::SessionHandle;

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
}
