//! From a request to model values. Every extractor refuses with a [`Problem`]; none repairs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
};
use http::{HeaderMap, HeaderName, header, request::Parts as Head};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::{
    App,
    audited::Known,
    problem::{Code, Facts, Problem},
};
use crate::{
    access::{Principal, TokenNumber},
    journal::RetryKey,
    model::{
        AttachmentId, InteractionHandle, LogGeneration, PrincipalId, ReceiptHandle, Seq,
        SessionHandle, StreamHandle, TicketHandle,
    },
    transfer::deliverable::Address,
};

/// The principal an owner-only way in vouches for: an extension, which no request of a network can
/// bring along.
#[derive(Clone, Debug)]
pub(super) struct Vouched(pub(super) Principal);

/// Who is asking. First in every handler that needs it: nothing of a request is looked at before.
#[derive(Debug)]
pub(super) struct Caller {
    /// The principal.
    pub(super) who: Principal,
    /// The token it showed; none where a way in vouches for it.
    pub(super) token: Option<TokenNumber>,
    /// Its place among the principal's requests; kept until the answer's last byte.
    pub(super) place: Place,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let (who, token) = if let Some(Vouched(who)) = head.extensions.get() {
            (who.clone(), None)
        } else {
            let token = bearer(&head.headers).ok_or(Problem::new(Code::Unauthenticated))?;
            let (who, number) = app
                .granted(move |access| access.authenticate(&token))
                .await?;
            (who, Some(number))
        };
        if let Some(known) = head.extensions.get::<Known>() {
            known.set(who.id);
        }
        let place = app
            .admission
            .enter(who.id, app.parts.limits.requests_per_principal)
            .ok_or(Problem::new(Code::Busy))?;
        Ok(Self { who, token, place })
    }
}

/// The token of the one `Authorization` field.
fn bearer(fields: &HeaderMap) -> Option<String> {
    let mut lines = fields.get_all(header::AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_matches(' ').to_owned())
}

/// How many requests each principal has in hand (I11).
#[derive(Debug, Default)]
pub(super) struct Admission(Mutex<HashMap<PrincipalId, usize>>);

/// One request's place; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    who: PrincipalId,
}

impl Admission {
    pub(super) fn enter(self: &Arc<Self>, who: PrincipalId, most: usize) -> Option<Place> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(who).or_default();
        if *count >= most {
            return None;
        }
        *count = count.saturating_add(1);
        Some(Place {
            admission: Arc::clone(self),
            who,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self
            .admission
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.who) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                held.remove(&self.who);
            }
        }
    }
}

/// The session an address names. What is no handle names no session: it is not found.
#[derive(Clone, Copy, Debug)]
pub(super) struct InSession(pub(super) SessionHandle);

impl FromRequestParts<App> for InSession {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "session").await?;
        SessionHandle::parse(&text)
            .map(Self)
            .map_err(|_not_a_handle| Problem::new(Code::NotFound))
    }
}

/// The attachment an address names; as [`InSession`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment(pub(super) AttachmentId);

impl FromRequestParts<App> for Attachment {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "attachment").await?;
        AttachmentId::parse(&text)
            .map(Self)
            .map_err(|_not_an_id| Problem::new(Code::NotFound))
    }
}

/// The interaction an address names; as [`InSession`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Interaction(pub(super) InteractionHandle);

impl FromRequestParts<App> for Interaction {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "interaction").await?;
        InteractionHandle::parse(&text)
            .map(Self)
            .map_err(|_not_a_handle| Problem::new(Code::NotFound))
    }
}

/// The number of the offer an address names; as [`InSession`].
#[derive(Clone, Copy, Debug)]
pub(super) struct OfferNumber(pub(super) u64);

impl FromRequestParts<App> for OfferNumber {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "offer").await?;
        let number = text.parse().ok();
        // One spelling each: `01` and `+1` name nothing.
        number
            .filter(|number: &u64| number.to_string() == text)
            .map(Self)
            .ok_or_else(|| Problem::new(Code::NotFound))
    }
}

/// The stream an address names; as [`InSession`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(pub(super) StreamHandle);

impl FromRequestParts<App> for Stream {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "stream").await?;
        StreamHandle::parse(&text)
            .map(Self)
            .map_err(|_not_a_handle| Problem::new(Code::NotFound))
    }
}

/// The ticket an address names by its public id; as [`InSession`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TicketId(pub(super) TicketHandle);

impl FromRequestParts<App> for TicketId {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "ticket").await?;
        TicketHandle::parse(&text)
            .map(Self)
            .map_err(|_not_a_handle| Problem::new(Code::NotFound))
    }
}

/// The receipt an address names; as [`InSession`].
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiptId(pub(super) ReceiptHandle);

impl FromRequestParts<App> for ReceiptId {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let text = parameter(head, app, "receipt").await?;
        ReceiptHandle::parse(&text)
            .map(Self)
            .map_err(|_not_a_handle| Problem::new(Code::NotFound))
    }
}

/// The declared file an address names: a session, and a place in its log. What is none of that names
/// nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declaration(pub(super) Address);

impl FromRequestParts<App> for Declaration {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        let InSession(session) = InSession::from_request_parts(head, app).await?;
        let generation = number(&parameter(head, app, "generation").await?)?;
        let seq = number(&parameter(head, app, "seq").await?)?;
        let index = number(&parameter(head, app, "index").await?)?;
        Ok(Self(Address {
            session,
            log_generation: LogGeneration::new(generation),
            seq: Seq::new(seq),
            index,
        }))
    }
}

/// A number in its one spelling.
fn number<T: std::str::FromStr + ToString>(text: &str) -> Result<T, Problem> {
    text.parse::<T>()
        .ok()
        .filter(|number| number.to_string() == text)
        .ok_or(Problem::new(Code::NotFound))
}

/// What a ticket's address ends in; text nobody has looked at, and nobody is shown.
pub(super) struct Secret(pub(super) String);

impl FromRequestParts<App> for Secret {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, app: &App) -> Result<Self, Problem> {
        parameter(head, app, "ticket").await.map(Self)
    }
}

/// That the address has no query: what it would say is said nowhere.
#[derive(Debug)]
pub(super) struct NoQuery;

impl FromRequestParts<App> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, _app: &App) -> Result<Self, Problem> {
        match head.uri.query() {
            None | Some("") => Ok(Self),
            Some(_) => Err(Problem::malformed("this address takes no query")),
        }
    }
}

/// A part of the path, percent-decoded once.
async fn parameter(head: &mut Head, app: &App, name: &str) -> Result<String, Problem> {
    let all = RawPathParams::from_request_parts(head, app)
        .await
        .map_err(|_not_utf8| Problem::new(Code::NotFound))?;
    all.iter()
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .ok_or(Problem::new(Code::NotFound))
}

/// The query, as a closed form: unknown and repeated parameters are refused.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, _app: &App) -> Result<Self, Problem> {
        let query = head.uri.query().unwrap_or_default();
        // The form decoder would put U+FFFD for what is not UTF-8.
        if percent_decode_str(query).decode_utf8().is_err() {
            return Err(Problem::malformed("the query is not UTF-8"));
        }
        axum::extract::Query::<T>::try_from_uri(&head.uri)
            .map(|axum::extract::Query(form)| Self(form))
            .map_err(|error| Problem::malformed(format!("query: {}", error.body_text())))
    }
}

/// The key by which a request says that it may come again.
#[derive(Debug)]
pub(super) struct Retry(pub(super) Option<RetryKey>);

impl Retry {
    /// The field's name.
    pub(super) const FIELD: HeaderName = HeaderName::from_static("idempotency-key");
}

impl FromRequestParts<App> for Retry {
    type Rejection = Problem;

    async fn from_request_parts(head: &mut Head, _app: &App) -> Result<Self, Problem> {
        let mut values = head.headers.get_all(Self::FIELD).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(Self(None)),
            (Some(value), None) => RetryKey::parse(value.as_bytes())
                .map(|key| Self(Some(key)))
                .map_err(|error| Problem::malformed(format!("Idempotency-Key: {error}"))),
            (Some(_), Some(_)) => Err(Problem::malformed("Idempotency-Key: two fields".to_owned())),
        }
    }
}

/// A JSON body, as a closed form.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bytes = json_body(request, app).await?;
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| Problem::malformed(format!("body: {error}")))
    }
}

/// The bytes of a body that says it is JSON.
pub(super) async fn json_body(request: Request, app: &App) -> Result<bytes::Bytes, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(Code::UnsupportedMediaType));
    }
    collect(request.into_body(), app.parts.limits.json_body.get()).await
}

async fn collect(body: Body, limit: u64) -> Result<bytes::Bytes, Problem> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    match Limited::new(body, most).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::new(Code::TooLarge)
            .with_facts(Facts {
                limit_bytes: Some(limit),
                setting: Some("limits.json_body"),
                ..Facts::default()
            })),
        Err(_cut) => Err(Problem::new(Code::LengthMismatch)),
    }
}

/// Whether the one `Content-Type` is JSON, whatever its parameters.
fn is_json(fields: &HeaderMap) -> bool {
    let mut lines = fields.get_all(header::CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    line.to_str().is_ok_and(|text| {
        let essence = text.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case("application/json")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, HeaderValue, header};

    use super::{Admission, bearer};
    use crate::model::PrincipalId;

    #[test]
    fn a_bearer_token_stands_in_exactly_one_field() {
        for (lines, token) in [
            (&["Bearer hf_1"][..], Some("hf_1")),
            (&["bearer  hf_1"], Some("hf_1")),
            (&["Basic hf_1"], None),
            (&["Bearer"], None),
            (&["Bearer hf_1", "Bearer hf_1"], None),
            (&[], None),
        ] {
            let mut fields = HeaderMap::new();
            for line in lines {
                fields.append(header::AUTHORIZATION, HeaderValue::from_static(line));
            }
            assert_eq!(bearer(&fields).as_deref(), token, "{lines:?}");
        }
    }

    /// Keeps I11.
    #[test]
    fn a_principal_has_so_many_places_and_gives_them_back() {
        let admission = Arc::new(Admission::default());
        let (one, other) = (
            PrincipalId::from_random([1; 16]),
            PrincipalId::from_random([2; 16]),
        );
        let first = admission.enter(one, 2);
        let second = admission.enter(one, 2);
        assert!(first.is_some() && second.is_some());
        assert!(admission.enter(one, 2).is_none(), "two is all it has");
        assert!(admission.enter(other, 2).is_some(), "others have their own");
        drop(first);
        assert!(admission.enter(one, 2).is_some());
        drop(second);
        assert!(admission.0.lock().unwrap().is_empty(), "nothing is kept");
    }
}
