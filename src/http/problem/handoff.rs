use super::{Code, Facts, Problem};
use crate::handoff::HandoffError;

impl Problem {
    /// One code for each reason: they must stay distinguishable.
    pub(super) fn of_handoff(error: HandoffError) -> Self {
        use HandoffError as E;
        let code = match error {
            E::ExecutorUnavailable => Code::ExecutorUnavailable,
            E::ExecutorKindRefused => Code::ExecutorKindRefused,
            E::IntentInvalid => Code::IntentInvalid,
            E::PathRefused => Code::PathRefused,
            E::BoundMissing => Code::BoundMissing,
            E::UnknownMember => Code::UnknownMember,
            E::OfferUnknown => Code::OfferUnknown,
            E::OfferRetired => Code::OfferRetired,
            E::OfferExpired => Code::OfferExpired,
            E::ScopeStale { field } => {
                return Self::new(Code::ScopeStale).with_facts(Facts {
                    field: Some(field),
                    ..Facts::default()
                });
            }
            E::DigestMismatch => Code::DigestMismatch,
            E::ConfirmationDeclined => Code::ConfirmationDeclined,
            E::ConfirmationUnavailable => Code::ConfirmationUnavailable,
            E::OutcomeUnknown => Code::OutcomeUnknown,
            E::Disposed => Code::Disposed,
        };
        Self::new(code)
    }
}

impl From<HandoffError> for Problem {
    fn from(error: HandoffError) -> Self {
        crate::transfer::TransferError::Handoff(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;
    use crate::handoff::HandoffError as E;

    #[test]
    fn each_reason_keeps_its_word() {
        for error in [
            E::ExecutorUnavailable,
            E::ExecutorKindRefused,
            E::IntentInvalid,
            E::PathRefused,
            E::BoundMissing,
            E::UnknownMember,
            E::OfferUnknown,
            E::OfferRetired,
            E::OfferExpired,
            E::ScopeStale { field: "turn" },
            E::DigestMismatch,
            E::ConfirmationDeclined,
            E::ConfirmationUnavailable,
            E::OutcomeUnknown,
            E::Disposed,
        ] {
            assert_eq!(Problem::of_handoff(error).0.code.as_str(), error.code());
        }
    }
}
