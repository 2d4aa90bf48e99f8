//! `PinningProof` cannot be copied, made of nothing, or read from a message.

use holdfast::gate::PinningProof;

fn copied(of: &PinningProof) -> PinningProof {
    Clone::clone(of)
}

fn out_of_nothing() -> PinningProof {
    Default::default()
}

fn read(text: &str) -> PinningProof {
    serde_json::from_str(text).unwrap()
}

fn main() {}
