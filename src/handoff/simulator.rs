use super::{Offer, Target};

/// The one kind of executor that is taken.
pub const SIMULATION: &str = "simulation";

/// An executor as it introduces itself.
#[derive(Clone, Debug)]
pub struct Executor {
    /// What kind it is: `simulation`, or it is refused.
    pub kind: String,
    /// Who and which connection.
    pub target: Target,
}

/// What an executor may do with an action: nothing.
pub trait Simulation: Send + Sync {
    /// Takes the action, and says what came of it. It is given no way to open anything.
    fn take(&self, offer: &Offer) -> Verdict;
}

/// What came of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken.
    Taken,
    /// The executor failed, went away, or did not answer.
    Unknown,
}

/// The simulator: takes every action, and does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulator;

impl Simulation for Simulator {
    fn take(&self, _offer: &Offer) -> Verdict {
        Verdict::Taken
    }
}
