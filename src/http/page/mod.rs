//! The page: four files from memory, never from a path.
//!
//! Promises: nothing untrusted is ever part of them, so they are the same for everybody; the page's
//! policy lets it run its own script and talk to its own origin, nothing else (I13). Leaves to
//! others: everything it shows comes from the same routes every other client uses (I10).

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asset {
    /// Where it is served.
    pub(super) path: &'static str,
    media_type: &'static str,
    content: &'static str,
}

/// Everything the page consists of; the first is the page itself.
pub(super) const ASSETS: [Asset; 4] = [
    Asset {
        path: "/",
        media_type: "text/html; charset=utf-8",
        content: include_str!("index.html"),
    },
    Asset {
        path: "/page.css",
        media_type: "text/css; charset=utf-8",
        content: include_str!("page.css"),
    },
    Asset {
        path: "/page.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("page.js"),
    },
    Asset {
        path: "/stream.js",
        media_type: "text/javascript; charset=utf-8",
        content: include_str!("stream.js"),
    },
];

/// What the page may do: its own script, style and origin; no frame, no form target, no base.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// Marks an answer that is a file of the page, so that the outer layer gives it the page's policy.
/// Only this module makes one.
#[derive(Clone, Debug)]
pub(super) struct OwnPage(());

impl OwnPage {
    /// The policy of the page's files.
    pub(super) fn policy(self) -> HeaderValue {
        let Self(()) = self;
        POLICY
    }
}

impl Asset {
    /// The file as an answer.
    pub(super) fn serve(self) -> Response {
        let mut response = self.content.into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(self.media_type),
        );
        response.extensions_mut().insert(OwnPage(()));
        response
    }
}
