use super::Target;
use crate::model::{Digest, Timestamp};

/// How a dispatch ended, in a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The simulator took the action.
    Simulated,
    /// Nobody knows.
    Unknown,
}

/// Evidence of a simulation. It says nothing of the file: nobody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The offer.
    pub offer: u64,
    /// The caller's own name for the execution.
    pub request: String,
    /// The offer's digest.
    pub digest: Digest,
    /// The executor and its connection.
    pub target: Target,
    /// What came of it.
    pub outcome: Outcome,
    /// When.
    pub issued_at: Timestamp,
}

impl Receipt {
    /// Always.
    #[must_use]
    pub const fn simulated(&self) -> bool {
        true
    }

    /// Never.
    #[must_use]
    pub const fn executed(&self) -> bool {
        false
    }

    /// The receipt as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "receiptVersion": 1,
            "offerId": self.offer,
            "requestId": self.request,
            "actionDigest": self.digest.to_string(),
            "executor": {
                "id": self.target.id, "kind": "simulation", "generation": self.target.generation,
            },
            "simulated": self.simulated(),
            "executed": self.executed(),
            "outcome": match self.outcome {
                Outcome::Simulated => "simulated",
                Outcome::Unknown => "unknown",
            },
            "issuedAt": self.issued_at.as_millis(),
        })
    }
}
