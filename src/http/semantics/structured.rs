//! Dictionaries of structured fields, as far as digests need them: RFC 9651 section 4.2.2.

use std::collections::HashMap;

use data_encoding::BASE64;

/// A member's value. Kinds no field of ours holds are told apart no further.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Integer(i64),
    Bytes(Vec<u8>),
    Other,
}

/// The members of a dictionary, the last of a name winning, or `None` where the text is not one.
pub(super) fn dictionary(text: &[u8]) -> Option<HashMap<String, Item>> {
    let mut cursor = Cursor(text);
    let mut members = HashMap::new();
    cursor.skip(b" ");
    if cursor.0.is_empty() {
        return Some(members);
    }
    loop {
        let key = cursor.key()?;
        let item = match cursor.take(b'=') {
            Some(()) => cursor.member()?,
            None => Item::Other, // a bare key is the boolean true
        };
        cursor.parameters()?;
        members.insert(key, item);
        cursor.skip(b" \t");
        if cursor.0.is_empty() {
            return Some(members);
        }
        cursor.take(b',')?;
        cursor.skip(b" \t");
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, byte: u8) -> Option<()> {
        let (&first, rest) = self.0.split_first()?;
        (first == byte).then(|| self.0 = rest)
    }

    fn skip(&mut self, any: &[u8]) {
        self.take_while(|b| any.contains(&b));
    }

    fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self
            .0
            .iter()
            .position(|&b| !wanted(b))
            .unwrap_or(self.0.len());
        match self.0.split_at_checked(end) {
            Some((taken, rest)) => {
                self.0 = rest;
                taken
            }
            None => &[],
        }
    }

    fn key(&mut self) -> Option<String> {
        if !matches!(self.0.first()?, b'a'..=b'z' | b'*') {
            return None;
        }
        let key =
            self.take_while(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'));
        String::from_utf8(key.to_vec()).ok()
    }

    fn member(&mut self) -> Option<Item> {
        if self.take(b'(').is_none() {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')').is_some() {
                return Some(Item::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.0.first()?, b' ' | b')') {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';').is_some() {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=').is_some() {
                self.item()?;
            }
        }
        Some(())
    }

    fn item(&mut self) -> Option<Item> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b':' => self.bytes(),
            b'"' => self.string(),
            b'?' => {
                self.take(b'?')?;
                self.take(b'0').or_else(|| self.take(b'1'))?;
                Some(Item::Other)
            }
            b'@' => {
                self.take(b'@')?;
                match self.number()? {
                    Item::Integer(_) => Some(Item::Other),
                    Item::Bytes(_) | Item::Other => None,
                }
            }
            b'%' => {
                self.take(b'%')?;
                self.string()
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'*' => {
                self.take_while(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&b));
                Some(Item::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Item> {
        let negative = self.take(b'-').is_some();
        let whole = self.take_while(|b| b.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return None;
        }
        if self.take(b'.').is_some() {
            let part = self.take_while(|b| b.is_ascii_digit());
            return (whole.len() <= 12 && matches!(part.len(), 1..=3)).then_some(Item::Other);
        }
        let value: i64 = std::str::from_utf8(whole).ok()?.parse().ok()?;
        Some(Item::Integer(if negative {
            value.saturating_neg()
        } else {
            value
        }))
    }

    fn bytes(&mut self) -> Option<Item> {
        self.take(b':')?;
        let text = self.take_while(|b| b != b':');
        self.take(b':')?;
        BASE64.decode(text).ok().map(Item::Bytes)
    }

    fn string(&mut self) -> Option<Item> {
        self.take(b'"')?;
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(Item::Other),
                b'\\' => {
                    self.take(b'"').or_else(|| self.take(b'\\'))?;
                }
                0x20..=0x7e => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Item, dictionary};

    #[test]
    fn what_is_not_a_dictionary_is_refused_as_a_whole() {
        for text in [
            "a=",
            "A=1",
            "a=1,",
            ",a=1",
            "a=1 b=2",
            "a=\"x",
            "a=(1 2",
            "a=(1,2)",
            "a=:x:",
            "a=1.",
            "a=1.2345",
            "a=1234567890123456",
            "a=?2",
            "a=@1.5",
            "a;=1",
            "a=1;B",
            "a=é",
            "=1",
        ] {
            assert_eq!(dictionary(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn members_of_every_kind_are_passed_over_correctly() {
        let text = "a=(1 \"x, y=1\";p :AQI=:), b, c=\"\\\"\\\\\";q=tok/en;r, d=?0, e=@-5, f=%\"x\", g=-7, h=:AQI=:";
        let members = dictionary(text.as_bytes()).unwrap();
        assert_eq!(members.len(), 8);
        assert_eq!(members.get("g"), Some(&Item::Integer(-7)));
        assert_eq!(members.get("h"), Some(&Item::Bytes(vec![1, 2])));
        assert_eq!(dictionary(b"  "), Some(std::collections::HashMap::new()));
    }
}
