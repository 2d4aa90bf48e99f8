use bytes::Bytes;

use super::{ByteRange, content_range};
use crate::model::{Digest, MediaType};

/// One part of an answer in several parts: what goes before it, and which bytes it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The delimiter and the part's own fields, to be sent as they are.
    pub head: Bytes,
    /// The bytes that follow.
    pub range: ByteRange,
}

/// The framing of `multipart/byteranges`, laid out in full before the first byte is sent, so that
/// its length is announced exactly.
///
/// # Source
/// RFC 9110 sections 14.6 and 15.3.7.2; RFC 2046 section 5.1.1. Each part carries the file's own
/// type and range; the answer as a whole carries neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
    /// The parts, in the order in which they are sent.
    pub parts: Vec<Part>,
    /// The closing delimiter.
    pub tail: Bytes,
    boundary: Digest,
    len: u64,
}

impl Multipart {
    /// Frames `ranges` of the content with this digest, of `complete` bytes.
    ///
    /// The boundary is the content's own SHA-256: no content can hold it but by breaking the hash.
    /// `None` if the length has no 64-bit form.
    #[must_use]
    pub fn frame(
        ranges: &[ByteRange],
        complete: u64,
        media_type: MediaType,
        digest: Digest,
    ) -> Option<Self> {
        let mut len = 0_u64;
        let mut parts = Vec::with_capacity(ranges.len());
        for (index, &range) in ranges.iter().enumerate() {
            let before = if index == 0 { "" } else { "\r\n" };
            let head = format!(
                "{before}--{digest}\r\nContent-Type: {media_type}\r\nContent-Range: {}\r\n\r\n",
                content_range(range, complete)
            );
            len = len
                .checked_add(u64::try_from(head.len()).ok()?)?
                .checked_add(range.len())?;
            parts.push(Part {
                head: head.into(),
                range,
            });
        }
        let tail = Bytes::from(format!("\r\n--{digest}--\r\n"));
        len = len.checked_add(u64::try_from(tail.len()).ok()?)?;
        Some(Self {
            parts,
            tail,
            boundary: digest,
            len,
        })
    }

    /// The length of the whole body, in bytes: framing and ranges.
    #[must_use]
    pub const fn content_length(&self) -> u64 {
        self.len
    }

    /// The value of the answer's own `Content-Type`.
    #[must_use]
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", self.boundary)
    }
}

#[cfg(test)]
mod tests {
    use super::Multipart;
    use crate::{
        http::semantics::{Selection, select},
        model::{ByteCount, Digest, MediaType},
    };

    #[test]
    fn r05_several_parts_are_framed_as_the_standard_says() {
        // Arrange
        let content = b"0123456789";
        let digest = Digest::of(content);
        let Selection::Many(ranges) = select([&b"bytes=0-1,8-"[..]], 10) else {
            panic!("two ranges");
        };
        // Act
        let framed = Multipart::frame(&ranges, 10, MediaType::Png, digest).unwrap();
        let mut body = Vec::new();
        for part in &framed.parts {
            body.extend_from_slice(&part.head);
            let span = part.range.span();
            let (start, end) = (usize::try_from(span.start), usize::try_from(span.end));
            body.extend_from_slice(content.get(start.unwrap()..end.unwrap()).unwrap());
        }
        body.extend_from_slice(&framed.tail);
        // Assert
        let expected = format!(
            "--{digest}\r\nContent-Type: image/png\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n\
             --{digest}\r\nContent-Type: image/png\r\nContent-Range: bytes 8-9/10\r\n\r\n89\r\n\
             --{digest}--\r\n"
        );
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert_eq!(
            ByteCount::new(framed.content_length()),
            expected.len().into()
        );
        assert_eq!(
            framed.content_type(),
            format!("multipart/byteranges; boundary={digest}")
        );
    }
}
