use std::collections::BTreeMap;

use super::{AskError, redact::Shown};

/// The longest tool name shown, in bytes.
const MAX_TOOL: usize = 256;
/// The longest reason shown, in bytes.
const MAX_REASON: usize = 2048;
/// The longest presentation, in bytes.
const MAX_PRESENTATION: usize = 4096;
/// The longest call id, in bytes.
const MAX_CALL: usize = 256;

/// What an agent says when it asks. It holds no arguments: none are made up from history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The tool.
    pub tool: String,
    /// The model's call, to join the prompt to what was streamed.
    pub call: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Why, by language: `en` and others. Never part of the audit.
    pub display_reason: BTreeMap<String, String>,
}

/// What a person is shown: without credentials, with hidden characters made visible, bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The tool.
    pub tool: String,
    /// The model's call.
    pub call: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Why, by language.
    pub display_reason: BTreeMap<String, String>,
    /// What is put before the person: the reason in its language, else in English, else `reason`.
    pub presentation: Option<String>,
    /// Something of the presentation did not fit.
    pub truncated: bool,
    /// Whether there is something readable to allow, all of it shown and none of it disguised.
    pub can_allow: bool,
}

impl Card {
    /// The card of a request, for people who read `locale`.
    pub(super) fn of(request: &Request, locale: &str) -> Result<Self, AskError> {
        let call_fits = |call: &String| !call.is_empty() && call.len() <= MAX_CALL;
        if request.tool.trim().is_empty() {
            return Err(AskError::Refused("an ask names its tool"));
        }
        if !request.call.as_ref().is_none_or(call_fits) {
            return Err(AskError::Refused("a call id has 1 to 256 bytes"));
        }
        if request.display_reason.len() > 16
            || request
                .display_reason
                .keys()
                .any(|language| language.len() > 35)
        {
            return Err(AskError::Refused("a reason has at most 16 languages"));
        }
        let tool = Shown::of(&request.tool, MAX_TOOL);
        let filled = |text: &&String| !text.trim().is_empty();
        let chosen = [locale, "en"]
            .iter()
            .find_map(|&language| request.display_reason.get(language).filter(filled))
            .or_else(|| request.reason.as_ref().filter(filled));
        let presentation = chosen.map(|text| Shown::of(text, MAX_PRESENTATION));
        let bounded = |text: &String| Shown::of(text, MAX_REASON).text;
        Ok(Self {
            can_allow: !tool.truncated
                && !tool.deceptive
                && presentation.as_ref().is_some_and(|shown| {
                    shown.is_readable() && !shown.truncated && !shown.deceptive
                }),
            truncated: tool.truncated || presentation.as_ref().is_some_and(|shown| shown.truncated),
            tool: tool.text,
            call: request
                .call
                .as_ref()
                .map(|call| Shown::of(call, MAX_CALL).text),
            reason: request.reason.as_ref().map(bounded),
            display_reason: request
                .display_reason
                .iter()
                .map(|(language, text)| (Shown::of(language, 64).text, bounded(text)))
                .collect(),
            presentation: presentation.map(|shown| shown.text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Card, Request};

    fn card(reason: Option<&str>, display: &[(&str, &str)]) -> Card {
        let request = Request {
            tool: "shell".to_owned(),
            call: None,
            reason: reason.map(str::to_owned),
            display_reason: display
                .iter()
                .map(|&(language, text)| (language.to_owned(), text.to_owned()))
                .collect(),
        };
        Card::of(&request, "de").unwrap()
    }

    #[test]
    fn br_06_redaction_can_remove_the_right_to_allow() {
        assert!(card(Some("delete build/"), &[]).can_allow);
        assert!(!card(Some("ghp_0123456789abcdef0123"), &[]).can_allow);
        assert!(!card(None, &[]).can_allow);
        assert!(!card(Some("  \n "), &[]).can_allow);
    }

    #[test]
    fn br_08_the_presentation_has_an_order_and_no_other_source() {
        let shown = |reason, display: &[(&str, &str)]| card(reason, display).presentation;
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(Some("r"), &[("de", "d"), ("en", "e")]), some("d"));
        assert_eq!(shown(Some("r"), &[("en", "e"), ("fr", "f")]), some("e"));
        assert_eq!(shown(Some("r"), &[("de", "  "), ("en", "e")]), some("e"));
        assert_eq!(shown(Some("r"), &[("fr", "f")]), some("r"));
        assert_eq!(shown(None, &[("fr", "f")]), None);
    }

    #[test]
    fn br_10_nothing_is_cut_silently() {
        let long = format!("{} and delete everything", "read a file, ".repeat(5000));
        let card = card(Some(&long), &[]);
        assert!(card.truncated && !card.can_allow);
        assert!(card.presentation.unwrap().len() <= 4096);
    }

    #[test]
    fn br_09_disguised_text_cannot_be_allowed() {
        let card = card(Some("delete \u{202e}txt.exe"), &[]);
        assert!(!card.can_allow);
        assert!(card.presentation.unwrap().contains("\\u{202e}"));
    }
}
