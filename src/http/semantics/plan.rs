use std::fmt::Display;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    ByteRange, EntityTag, IfRange, Multipart, Outcome, Selection, Wish, attachment, content_range,
    evaluate, if_range, legacy_digest, repr_digest, select, unsatisfied_range, wish, wish_legacy,
};
use crate::model::{ByteCount, Digest, MediaType, SaveName};

/// The two methods a download answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// With a body.
    Get,
    /// The same fields without one; `Range` has no meaning.
    Head,
}

/// How long an answer may be kept, and by whom. Never by a shared cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Reached with a credential, at an address that can never mean other bytes.
    Immutable,
    /// Reached by a ticket: not kept, because the address is a secret that ends.
    NoStore,
}

/// What is to be sent: content that exists, that the caller may have, and whose facts are verified.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    /// The digest of the content.
    pub digest: Digest,
    /// Its length.
    pub len: ByteCount,
    /// The inert type it is labelled with.
    pub media_type: MediaType,
    /// The name a client is told to save it as.
    pub name: &'a SaveName,
    /// Who may keep it.
    pub cache: Cache,
}

/// The body of a planned answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// None: 304, and every answer to HEAD.
    Nothing,
    /// The whole content.
    Whole,
    /// One range of it.
    One(ByteRange),
    /// Several ranges in their framing.
    Parts(Multipart),
    /// A problem of the planned status; the plan's fields are added to the problem's own.
    Problem,
}

/// A download's answer, ready to be sent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// 200, 206, 304, 412 or 416.
    pub status: StatusCode,
    /// Every field that depends on content and request. What all answers carry is set elsewhere.
    pub fields: HeaderMap,
    /// The body.
    pub content: Content,
}

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const DIGEST: HeaderName = HeaderName::from_static("digest");
const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");
const WANT_CONTENT_DIGEST: HeaderName = HeaderName::from_static("want-content-digest");
const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");

/// Plans the answer to a GET or HEAD for `object`.
///
/// The caller has settled authorization and existence; what follows happens in the order of the
/// standard: `If-Match`, `If-None-Match`, `If-Range`, `Range`. HEAD answers as GET without `Range`.
///
/// # Source
/// RFC 9110 sections 13.2.2, 14.2, 15.3.7, 15.4.5 and 15.5.17; RFC 9530.
#[must_use]
pub fn plan(verb: Verb, request: &HeaderMap, object: &Object<'_>) -> Plan {
    let tag = EntityTag::of(object.digest);
    match evaluate(request, tag) {
        Outcome::Failed => return problem(StatusCode::PRECONDITION_FAILED),
        Outcome::NotModified => {
            return Plan {
                status: StatusCode::NOT_MODIFIED,
                fields: validators(object, tag),
                content: Content::Nothing,
            };
        }
        Outcome::Proceed => {}
    }
    let selection = match (verb, if_range(request, tag)) {
        (Verb::Get, IfRange::Honour) => select(lines(request, &header::RANGE), object.len.get()),
        (Verb::Get, IfRange::Ignore) | (Verb::Head, _) => Selection::Whole,
    };
    match selection {
        Selection::Whole => whole(verb, request, object, tag),
        Selection::One(range) => {
            let mut plan = representation(request, object, tag);
            plan.status = StatusCode::PARTIAL_CONTENT;
            set(&mut plan.fields, header::CONTENT_TYPE, object.media_type);
            set(&mut plan.fields, header::CONTENT_LENGTH, range.len());
            let place = content_range(range, object.len.get());
            set(&mut plan.fields, header::CONTENT_RANGE, place);
            if range.len() == object.len.get() {
                content_digest(request, object, &mut plan);
            }
            plan.content = Content::One(range);
            plan
        }
        Selection::Many(ranges) => several(&ranges, request, object, tag)
            .unwrap_or_else(|| whole(verb, request, object, tag)),
        Selection::Unsatisfiable => {
            let mut plan = problem(StatusCode::RANGE_NOT_SATISFIABLE);
            let place = unsatisfied_range(object.len.get());
            set(&mut plan.fields, header::CONTENT_RANGE, place);
            plan
        }
    }
}

fn whole(verb: Verb, request: &HeaderMap, object: &Object<'_>, tag: EntityTag) -> Plan {
    let mut plan = representation(request, object, tag);
    set(&mut plan.fields, header::CONTENT_TYPE, object.media_type);
    set(&mut plan.fields, header::CONTENT_LENGTH, object.len.get());
    if verb == Verb::Get {
        plan.content = Content::Whole;
        content_digest(request, object, &mut plan);
    }
    plan
}

/// The content's own digest, for those who ask, where content and representation are one. A part's
/// would have to be computed before its first byte, and HEAD has no content.
fn content_digest(request: &HeaderMap, object: &Object<'_>, plan: &mut Plan) {
    if wish(lines(request, &WANT_CONTENT_DIGEST)) == Wish::Wanted {
        set(&mut plan.fields, CONTENT_DIGEST, repr_digest(object.digest));
    }
}

/// 206 in several parts, or `None` where the framing would cost more than the file.
fn several(
    ranges: &[ByteRange],
    request: &HeaderMap,
    object: &Object<'_>,
    tag: EntityTag,
) -> Option<Plan> {
    let framed = Multipart::frame(ranges, object.len.get(), object.media_type, object.digest)
        .filter(|framed| framed.content_length() <= object.len.get())?;
    let mut plan = representation(request, object, tag);
    plan.status = StatusCode::PARTIAL_CONTENT;
    set(
        &mut plan.fields,
        header::CONTENT_TYPE,
        framed.content_type(),
    );
    set(
        &mut plan.fields,
        header::CONTENT_LENGTH,
        framed.content_length(),
    );
    plan.content = Content::Parts(framed);
    Some(plan)
}

/// The fields every answer with content carries, whichever part of it.
fn representation(request: &HeaderMap, object: &Object<'_>, tag: EntityTag) -> Plan {
    let mut fields = validators(object, tag);
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    set(
        &mut fields,
        header::CONTENT_DISPOSITION,
        attachment(object.name),
    );
    if wish(lines(request, &WANT_REPR_DIGEST)) != Wish::Unwanted {
        set(&mut fields, REPR_DIGEST, repr_digest(object.digest));
    }
    if wish_legacy(lines(request, &WANT_DIGEST)) == Wish::Wanted {
        set(&mut fields, DIGEST, legacy_digest(object.digest));
    }
    Plan {
        status: StatusCode::OK,
        fields,
        content: Content::Nothing,
    }
}

/// What a 304 carries too: validator and caching.
fn validators(object: &Object<'_>, tag: EntityTag) -> HeaderMap {
    let mut fields = HeaderMap::new();
    set(&mut fields, header::ETAG, tag);
    match object.cache {
        Cache::Immutable => {
            let keep =
                HeaderValue::from_static("private, max-age=31536000, immutable, no-transform");
            fields.insert(header::CACHE_CONTROL, keep);
            fields.insert(header::VARY, HeaderValue::from_static("Authorization"));
        }
        Cache::NoStore => {
            let drop = HeaderValue::from_static("private, no-store");
            fields.insert(header::CACHE_CONTROL, drop);
        }
    }
    fields
}

fn problem(status: StatusCode) -> Plan {
    Plan {
        status,
        fields: HeaderMap::new(),
        content: Content::Problem,
    }
}

fn lines<'a>(request: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    request.get_all(name).iter().map(HeaderValue::as_bytes)
}

fn set(fields: &mut HeaderMap, name: HeaderName, value: impl Display) {
    let value = HeaderValue::try_from(value.to_string())
        .expect("digests, numbers, types and our own dispositions are visible ASCII");
    fields.insert(name, value);
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Cache, Content, Object, Plan, Verb, plan};
    use crate::model::{ByteCount, Digest, MediaType, SaveName};

    const SHA: &str = "sha-256=:7XACtDnprIRfIjV9giusFERzD722AW0+yUMil7nsn3M=:";

    fn answer(verb: Verb, len: u64, request: &[(&'static str, &str)]) -> Plan {
        let name = SaveName::new("a.txt");
        let object = Object {
            digest: Digest::of(b"content"),
            len: ByteCount::new(len),
            media_type: MediaType::Octets,
            name: &name,
            cache: Cache::Immutable,
        };
        let headers: HeaderMap = request
            .iter()
            .map(|&(name, value)| {
                let value = HeaderValue::from_str(value).unwrap();
                (HeaderName::from_static(name), value)
            })
            .collect();
        plan(verb, &headers, &object)
    }

    fn names(plan: &Plan) -> String {
        let mut names: Vec<_> = plan.fields.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names.join(" ")
    }

    fn field<'a>(plan: &'a Plan, name: &str) -> &'a str {
        plan.fields
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn ours() -> String {
        format!("\"{}\"", Digest::of(b"content"))
    }

    #[test]
    fn each_status_carries_its_own_set_of_fields() {
        const WITH_CONTENT: &str = "accept-ranges cache-control content-disposition content-length \
                                    content-type etag repr-digest vary";
        const PART: &str = "accept-ranges cache-control content-disposition content-length \
                            content-range content-type etag repr-digest vary";
        let tag = ours();
        for (request, status, fields) in [
            (&[][..], 200, WITH_CONTENT),
            (&[("range", "bytes=0-0")], 206, PART),
            (&[("range", "bytes=0-0,999-")], 206, WITH_CONTENT),
            (&[("range", "bytes=1000-")], 416, "content-range"),
            (&[("if-match", "\"x\"")], 412, ""),
            (
                &[("if-none-match", tag.as_str())],
                304,
                "cache-control etag vary",
            ),
            (
                &[("range", "bytes=0-0"), ("if-range", "\"x\"")],
                200,
                WITH_CONTENT,
            ),
            (
                &[("range", "bytes=0-0"), ("if-range", tag.as_str())],
                206,
                PART,
            ),
            // The order: a condition before a range.
            (&[("range", "bytes=1000-"), ("if-match", "\"x\"")], 412, ""),
            (
                &[("range", "bytes=1000-"), ("if-none-match", "*")],
                304,
                "cache-control etag vary",
            ),
            (
                &[("range", "bytes=1000-"), ("if-range", "\"x\"")],
                200,
                WITH_CONTENT,
            ),
        ] {
            let plan = answer(Verb::Get, 1000, request);
            assert_eq!(
                (plan.status.as_u16(), names(&plan).as_str()),
                (status, fields),
                "{request:?}"
            );
        }
    }

    #[test]
    fn head_answers_as_get_does_without_a_range() {
        let tag = ours();
        for request in [
            &[][..],
            &[("range", "bytes=0-0")],
            &[("range", "bytes=1000-")],
            &[("if-match", "\"x\"")],
            &[("if-none-match", tag.as_str())],
        ] {
            let head = answer(Verb::Head, 1000, request);
            let without: Vec<_> = request
                .iter()
                .copied()
                .filter(|(n, _)| *n != "range")
                .collect();
            let get = answer(Verb::Get, 1000, &without);
            assert_eq!(
                (head.status, &head.fields),
                (get.status, &get.fields),
                "{request:?}"
            );
            assert!(
                matches!(head.content, Content::Nothing | Content::Problem),
                "{request:?}"
            );
        }
    }

    #[test]
    fn r05_a_416_names_unit_and_length_and_parts_carry_no_range_of_their_own() {
        let plan = answer(Verb::Get, 1000, &[("range", "bytes=1000-")]);
        assert_eq!(field(&plan, "content-range"), "bytes */1000");
        let plan = answer(Verb::Get, 1000, &[("range", "bytes=0-0,999-")]);
        let Content::Parts(parts) = &plan.content else {
            panic!("parts");
        };
        assert_eq!(
            field(&plan, "content-length"),
            parts.content_length().to_string()
        );
        assert_eq!(field(&plan, "content-type"), parts.content_type());
    }

    #[test]
    fn several_ranges_never_cost_more_than_the_file() {
        let plan = answer(Verb::Get, 300, &[("range", "bytes=0-0,299-")]);
        assert_eq!((plan.status.as_u16(), plan.content), (200, Content::Whole));
    }

    #[test]
    fn digests_are_of_the_whole_and_of_the_part_only_where_known() {
        for (request, repr, content, old) in [
            (&[][..], SHA, "", ""),
            (&[("want-repr-digest", "sha-256=0")], "", "", ""),
            (&[("want-content-digest", "sha-256=1")], SHA, SHA, ""),
            (
                &[("want-content-digest", "sha-256=1"), ("range", "bytes=0-9")],
                SHA,
                "",
                "",
            ),
            (
                &[("want-digest", "sha-256"), ("range", "bytes=0-9")],
                SHA,
                "",
                "SHA-256=7XACtDnprIRfIjV9giusFERzD722AW0+yUMil7nsn3M=",
            ),
            (
                &[("if-match", "\"x\""), ("want-content-digest", "sha-256=1")],
                "",
                "",
                "",
            ),
        ] {
            let plan = answer(Verb::Get, 1000, request);
            assert_eq!(field(&plan, "repr-digest"), repr, "{request:?}");
            assert_eq!(field(&plan, "content-digest"), content, "{request:?}");
            assert_eq!(field(&plan, "digest"), old, "{request:?}");
        }
    }
}
