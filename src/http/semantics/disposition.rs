use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::model::SaveName;

/// The value of `Content-Disposition` for a download: always `attachment` (I13), with the ASCII
/// form for old readers and the UTF-8 form where it says more. Visible ASCII and spaces throughout.
///
/// # Source
/// RFC 6266 sections 4.1 to 4.3 and appendix D; RFC 8187 section 3.2.
#[must_use]
pub fn attachment(name: &SaveName) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let ascii = name.ascii();
        write!(f, "attachment; filename=\"{ascii}\"")?;
        if ascii != name.as_str() {
            let encoded = percent_encode(name.as_str().as_bytes(), NOT_ATTR_CHAR);
            write!(f, "; filename*=UTF-8''{encoded}")?;
        }
        Ok(())
    })
}

/// What RFC 8187 does not let stand for itself: anything but `attr-char`.
const NOT_ATTR_CHAR: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

#[cfg(test)]
mod tests {
    use super::attachment;
    use crate::model::SaveName;

    fn header(name: &str) -> String {
        attachment(&SaveName::new(name)).to_string()
    }

    #[test]
    fn n01_a_name_in_any_script_has_an_ascii_form_and_its_own() {
        for (name, expected) in [
            ("plain.txt", "attachment; filename=\"plain.txt\""),
            ("a b, c.txt", "attachment; filename=\"a b, c.txt\""),
            (
                "naïve café.txt",
                "attachment; filename=\"naive cafe.txt\"; filename*=UTF-8''na%C3%AFve%20caf%C3%A9.txt",
            ),
            (
                "报告.md",
                "attachment; filename=\"__.md\"; filename*=UTF-8''%E6%8A%A5%E5%91%8A.md",
            ),
            (
                "Straße–Łódź.txt",
                "attachment; filename=\"Strasse-Lodz.txt\"; \
                 filename*=UTF-8''Stra%C3%9Fe%E2%80%93%C5%81%C3%B3d%C5%BA.txt",
            ),
            (
                "🎉.png",
                "attachment; filename=\"_.png\"; filename*=UTF-8''%F0%9F%8E%89.png",
            ),
            (
                "it's 100%; ok.txt",
                "attachment; filename=\"it's 100__ ok.txt\"; \
                 filename*=UTF-8''it%27s%20100%25%3B%20ok.txt",
            ),
            // What decomposes into something unsafe is still a safe name in ASCII.
            (
                "ＮＵＬ.txt",
                "attachment; filename=\"_NUL.txt\"; filename*=UTF-8''%EF%BC%AE%EF%BC%B5%EF%BC%AC.txt",
            ),
            (
                "a／b．．",
                "attachment; filename=\"a_b\"; filename*=UTF-8''a%EF%BC%8Fb%EF%BC%8E%EF%BC%8E",
            ),
        ] {
            assert_eq!(header(name), expected, "{name}");
        }
    }

    #[test]
    fn n02_a_quote_in_a_name_adds_no_parameter() {
        assert_eq!(
            header("a\"; filename=evil.html; x=\".txt"),
            "attachment; filename=\"a__ filename=evil.html_ x=_.txt\"; \
             filename*=UTF-8''a_%3B%20filename%3Devil.html%3B%20x%3D_.txt"
        );
    }
}
