use std::fmt;

use serde::{Deserialize, Serialize};

/// The inert media types a download may be labelled with; everything else is octets.
///
/// A closed list on purpose (I13): none of these can run script in our origin. What an uploader
/// claims is never sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MediaType {
    /// Anything: `application/octet-stream`.
    #[default]
    #[serde(rename = "application/octet-stream")]
    Octets,
    /// `image/png`.
    #[serde(rename = "image/png")]
    Png,
    /// `image/jpeg`.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// `image/webp`.
    #[serde(rename = "image/webp")]
    Webp,
    /// `image/gif`.
    #[serde(rename = "image/gif")]
    Gif,
}

impl MediaType {
    /// The inert type an image reference declares, if it is one of the four a DSH home knows.
    #[must_use]
    pub fn of_image(text: &str) -> Option<Self> {
        match text {
            "image/png" => Some(Self::Png),
            "image/jpeg" => Some(Self::Jpeg),
            "image/webp" => Some(Self::Webp),
            "image/gif" => Some(Self::Gif),
            _ => None,
        }
    }

    /// The type as it stands in a header field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Octets => "application/octet-stream",
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
        }
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::MediaType;

    #[test]
    fn an_active_type_is_never_an_image_type() {
        for text in [
            "image/svg+xml",
            "text/html",
            "IMAGE/PNG",
            "image/png; x=y",
            "",
        ] {
            assert_eq!(MediaType::of_image(text), None, "{text}");
        }
        assert_eq!(MediaType::of_image("image/png"), Some(MediaType::Png));
    }
}
