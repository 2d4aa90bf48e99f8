use super::{AskError, DecideError};

/// The most questions of one ask, and the most options of one question.
const MOST: usize = 32;
/// The longest text of a question, in bytes.
const MAX_TEXT: usize = 8192;
/// The longest id, label or header, in bytes.
const MAX_LABEL: usize = 512;

/// One question of a form. Free text in its answer is text: it never grants anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its id, unique in the form.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// More about it.
    pub detail: Option<String>,
    /// A short heading.
    pub header: Option<String>,
    /// What can be selected.
    pub options: Vec<Choice>,
    /// Whether more than one option may be selected.
    pub multi_select: bool,
    /// Names the option that approves a plan; presentation alone.
    pub approve: Option<String>,
}

/// One option of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is selected by it, to the byte.
    pub label: String,
    /// More about it.
    pub description: Option<String>,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The question.
    pub id: String,
    /// The labels selected; none is a legal skip.
    pub selected: Vec<String>,
    /// Free text.
    pub custom: Option<String>,
}

/// Checks a form before anybody is shown it.
pub(super) fn admit(questions: &[Question]) -> Result<(), AskError> {
    let refuse = |text| Err(AskError::Refused(text));
    if questions.is_empty() || questions.len() > MOST {
        return refuse("a form has 1 to 32 questions");
    }
    for (index, question) in questions.iter().enumerate() {
        let ids = questions.iter().take(index);
        if question.id.is_empty() || ids.clone().any(|earlier| earlier.id == question.id) {
            return refuse("each question has an id of its own");
        }
        let labels = question.options.iter().map(|option| &option.label);
        let texts = [Some(&question.question), question.detail.as_ref()];
        let short = [Some(&question.id), question.header.as_ref()];
        let long = |text: Option<&String>, most| text.is_some_and(|text| text.len() > most);
        if question.question.trim().is_empty()
            || question.options.len() > MOST
            || texts.into_iter().any(|text| long(text, MAX_TEXT))
            || short
                .into_iter()
                .chain(labels.clone().map(Some))
                .any(|text| long(text, MAX_LABEL))
            || question
                .options
                .iter()
                .any(|option| long(option.description.as_ref(), MAX_TEXT))
        {
            return refuse("a question has a text, 32 options at most, and bounded texts");
        }
        for (at, label) in labels.clone().enumerate() {
            if label.trim().is_empty() || labels.clone().take(at).any(|earlier| earlier == label) {
                return refuse("each option has a label of its own");
            }
        }
        if let Some(approve) = &question.approve {
            // A plan without its text, or an approval nobody can select, cannot be reviewed.
            if question.detail.is_none() || !labels.clone().any(|label| label == approve) {
                return refuse("a plan review names one of its labels and has a detail");
            }
        }
    }
    Ok(())
}

/// Checks a whole batch of replies against its form.
pub(super) fn fits(questions: &[Question], replies: &[Reply]) -> Result<(), DecideError> {
    let bad = |text| Err(DecideError::BadAnswer(text));
    if questions.len() != replies.len() {
        return bad("there is one answer for each question");
    }
    for (question, reply) in questions.iter().zip(replies) {
        if question.id != reply.id {
            return bad("the answers have the ids of the questions, in their order");
        }
        for (at, label) in reply.selected.iter().enumerate() {
            if reply
                .selected
                .iter()
                .take(at)
                .any(|earlier| earlier == label)
            {
                return bad("a label is selected once");
            }
            if !question.options.iter().any(|option| option.label == *label) {
                return bad("a label was not offered");
            }
        }
        let blank = |custom: &String| custom.trim().is_empty() || custom.len() > MAX_TEXT;
        if reply.custom.as_ref().is_some_and(blank) {
            return bad("custom text is not blank, and bounded");
        }
        let given = reply.selected.len() + usize::from(reply.custom.is_some());
        if !question.multi_select && given > 1 {
            return bad("a question of one choice takes one");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Choice, Question, Reply, admit, fits};

    fn question(id: &str, multi_select: bool) -> Question {
        let choice = |label: &str| Choice {
            label: label.to_owned(),
            description: None,
        };
        Question {
            id: id.to_owned(),
            question: "which?".to_owned(),
            detail: None,
            header: None,
            options: vec![choice("yes"), choice("no")],
            multi_select,
            approve: None,
        }
    }

    fn reply(id: &str, selected: &[&str], custom: Option<&str>) -> Reply {
        Reply {
            id: id.to_owned(),
            selected: selected.iter().map(|&label| label.to_owned()).collect(),
            custom: custom.map(str::to_owned),
        }
    }

    #[test]
    fn qu_01_a_batch_must_match_exactly() {
        let form = [question("a", false), question("b", false)];
        let [a, b] = ["a", "b"].map(|id| reply(id, &["yes"], None));
        assert_eq!(fits(&form, &[a.clone(), b.clone()]), Ok(()));
        for replies in [
            vec![a.clone()],
            vec![b.clone(), a.clone()],
            vec![a.clone(), a.clone()],
            vec![a.clone(), b.clone(), reply("c", &[], None)],
            vec![],
        ] {
            assert!(fits(&form, &replies).is_err(), "{replies:?}");
        }
    }

    #[test]
    fn qu_02_labels_must_be_offered_to_the_byte() {
        for label in ["Yes", "yes ", "y\u{435}s", "ye\u{200b}s", ""] {
            let replies = [reply("a", &[label], None)];
            assert!(
                fits(&[question("a", false)], &replies).is_err(),
                "{label:?}"
            );
        }
    }

    #[test]
    fn qu_03_a_question_of_one_choice_takes_one() {
        for (selected, custom, multi, passes) in [
            (&["yes"][..], None, false, true),
            (&["yes", "no"], None, false, false),
            (&["yes"], Some("but"), false, false),
            (&["yes", "no"], Some("but"), true, true),
            (&["yes", "yes"], None, true, false),
        ] {
            let fit = fits(&[question("a", multi)], &[reply("a", selected, custom)]);
            assert_eq!(fit.is_ok(), passes, "{selected:?} {custom:?} {multi}");
        }
    }

    #[test]
    fn qu_04_a_blank_skip_is_legal_and_blank_text_is_not() {
        let form = [question("a", false)];
        assert_eq!(fits(&form, &[reply("a", &[], None)]), Ok(()));
        assert_eq!(fits(&form, &[reply("a", &[], Some("so"))]), Ok(()));
        assert!(fits(&form, &[reply("a", &[], Some("  "))]).is_err());
    }

    #[test]
    fn a_form_is_checked_before_anybody_sees_it() {
        let with = |change: fn(&mut Question)| {
            let mut one = question("a", false);
            change(&mut one);
            admit(&[one])
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert!(admit(&[]).is_err());
        assert!(admit(&[question("a", false), question("a", false)]).is_err());
        assert!(with(|q| q.question = " ".to_owned()).is_err());
        assert!(with(|q| q.options[1].label = "yes".to_owned()).is_err());
        assert!(with(|q| q.approve = Some("yes".to_owned())).is_err());
        assert!(
            with(|q| {
                q.approve = Some("yes".to_owned());
                q.detail = Some("the plan".to_owned());
            })
            .is_ok()
        );
    }
}
