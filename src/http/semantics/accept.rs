use http::{HeaderMap, HeaderValue, header};

use super::trim_blanks;

/// In which form a client can make use of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemForm {
    /// `application/problem+json`, for programs.
    Json,
    /// A page, for a person who followed a link.
    Page,
}

/// Reads from a request's fields whether a person navigates.
///
/// A browser says so itself (`Sec-Fetch-Mode`), and then its word is taken; otherwise `text/html` must
/// be named in `Accept` and be liked better than JSON. In doubt: JSON.
///
/// # Source
/// Fetch Metadata Request Headers, section 2.2; RFC 9110 section 12.5.1.
#[must_use]
pub fn problem_form(request: &HeaderMap) -> ProblemForm {
    let page = if let Some(mode) = request.get("sec-fetch-mode") {
        mode == "navigate"
    } else {
        let html = quality(request, b"text/html");
        let problem = quality(request, b"application/problem+json");
        let json = quality(request, b"application/json");
        html.named && html.weight > problem.weight.max(json.weight)
    };
    if page {
        ProblemForm::Page
    } else {
        ProblemForm::Json
    }
}

/// How much a client likes a type, and whether it named it in full.
struct Quality {
    /// In thousandths.
    weight: u16,
    named: bool,
}

/// The weight of the most specific range of `Accept` that covers `wanted`.
fn quality(request: &HeaderMap, wanted: &[u8]) -> Quality {
    let family = wanted.split(|&b| b == b'/').next().unwrap_or_default();
    let mut best = (0_u8, 0_u16);
    let lines = request
        .get_all(header::ACCEPT)
        .iter()
        .map(HeaderValue::as_bytes);
    for element in lines.flat_map(|line| line.split(|&b| b == b',')) {
        let mut parts = element.split(|&b| b == b';').map(trim_blanks);
        let range = parts.next().unwrap_or_default();
        let specific = if range.eq_ignore_ascii_case(wanted) {
            3
        } else if range
            .strip_suffix(b"/*")
            .is_some_and(|range| range.eq_ignore_ascii_case(family))
        {
            2
        } else if range == b"*/*" {
            1
        } else {
            continue;
        };
        let weight = parts.find_map(weight).unwrap_or(1000);
        if specific > best.0 {
            best = (specific, weight);
        }
    }
    Quality {
        weight: best.1,
        named: best.0 == 3,
    }
}

/// A `q` parameter in thousandths; a malformed one counts as nothing liked.
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else {
        return None;
    };
    Some(match value {
        [b'1'] => 1000,
        [b'1', b'.', zeros @ ..] if zeros.iter().all(|&b| b == b'0') => 1000,
        [b'0', b'.', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => digits
            .iter()
            .zip([100, 10, 1])
            .map(|(digit, place)| u16::from(digit.wrapping_sub(b'0')).saturating_mul(place))
            .fold(0, u16::saturating_add),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{ProblemForm, problem_form};

    #[test]
    fn a_person_who_follows_a_link_gets_a_page_and_a_program_json() {
        const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (fields, expected) in [
            (&[][..], ProblemForm::Json),
            (&[("accept", "*/*")], ProblemForm::Json),
            (&[("accept", BROWSER)], ProblemForm::Page),
            (&[("accept", "TEXT/HTML")], ProblemForm::Page),
            (&[("accept", "text/*")], ProblemForm::Json),
            (
                &[("accept", "application/json, text/html")],
                ProblemForm::Json,
            ),
            (
                &[("accept", "application/json;q=0.9, text/html;q=0.91")],
                ProblemForm::Page,
            ),
            (
                &[("accept", "application/json;q=0.9, text/html;q=0.899")],
                ProblemForm::Json,
            ),
            (
                &[("accept", "application/problem+json, text/html;q=0.5")],
                ProblemForm::Json,
            ),
            (&[("accept", "text/html;q=0")], ProblemForm::Json),
            (&[("accept", "text/html;q=x")], ProblemForm::Json),
            (
                &[
                    ("accept", "*/*;q=0.1"),
                    ("accept", "text/html;level=1;q=0.2"),
                ],
                ProblemForm::Page,
            ),
            (
                &[("accept", "*/*"), ("sec-fetch-mode", "navigate")],
                ProblemForm::Page,
            ),
            (
                &[("accept", BROWSER), ("sec-fetch-mode", "cors")],
                ProblemForm::Json,
            ),
        ] {
            let request: HeaderMap = fields
                .iter()
                .map(|&(name, value)| {
                    (
                        HeaderName::from_static(name),
                        HeaderValue::from_static(value),
                    )
                })
                .collect();
            assert_eq!(problem_form(&request), expected, "{fields:?}");
        }
    }
}
