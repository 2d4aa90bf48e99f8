use holdfast::{
    access::Grant,
    model::AttachmentRef,
};

fn forge(reference: AttachmentRef) -> Grant<AttachmentRef> {
    Grant::passed(reference)
}

fn main() {}
