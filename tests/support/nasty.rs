//! Names that are hard to save under.

/// Names a reference may carry. None of them is what it seems, or none of them is easy.
pub(crate) fn nasty() -> Vec<String> {
    let mut names: Vec<String> = [
        "报告.md",
        "отчёт за год.txt",
        "تقرير.pdf",
        "naïve café.txt",
        "Straße–Łódź.txt",
        "🎉 party.png",
        "👨\u{200d}👩\u{200d}👧.png",
        "e\u{301}.txt",
        "a b c.txt",
        "a, b; c.txt",
        "a+b.txt",
        "100%.txt",
        "%41%2e%2e%2f.txt",
        "%22%0d%0aX: y.txt",
        "my%20file.txt",
        "%2ebashrc",
        "%252e%252e%252fx",
        "a\"; filename=evil.html; x=\".txt",
        "a\"b.txt",
        "\"quoted\".txt",
        "it's.txt",
        "back`tick`.txt",
        "$(id).txt",
        "a;id;.txt",
        "a|b.txt",
        "a&b.txt",
        "<script>.html",
        "a<b>c.txt",
        "a:b.txt",
        "C:evil.txt",
        "a*?.txt",
        "NUL.bin",
        "con",
        "Aux.tar.gz",
        "com1.txt",
        "LPT³.txt",
        "CONIN$",
        "x.txt.",
        "x. . .",
        "...x",
        "..x..",
        "-rf",
        "--output=x",
        ".bashrc",
        ".ssh",
        ".gitignore",
        "~",
        "~root",
        "inno\u{202e}gpj.exe",
        "\u{2066}a\u{2069}b.txt",
        "zero\u{200b}width.txt",
        "\u{feff}bom.txt",
        "soft\u{ad}hyphen.txt",
        "line\u{2028}break.txt",
        "c1\u{85}control\u{9b}31m.txt",
        "ＮＵＬ.txt",
        "a／b＼c.txt",
        "‥",
        "UTF-8''x.txt",
        "=?utf-8?q?x?=.txt",
        "filename*=UTF-8''x.txt",
        "index.html",
    ]
    .map(String::from)
    .into();
    names.push(format!("{}.txt", "长".repeat(200)));
    names.push(format!("{}.tar.gz", "x".repeat(240)));
    names
}

/// Whether a name is safe to have on Linux, macOS and Windows: said once more, in other words than the
/// code that makes names safe.
pub(crate) fn is_safe(name: &str) -> bool {
    let devices = [
        "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$", "COM¹", "COM²", "COM³", "LPT¹",
        "LPT²", "LPT³",
    ];
    let stem = name.split('.').next().unwrap().trim_end().to_uppercase();
    let numbered = |port: &str| {
        let number = stem.strip_prefix(port);
        number.is_some_and(|n| n.len() == 1 && n.chars().all(|c| c.is_ascii_digit()))
    };
    let is_device = devices.contains(&&*stem) || numbered("COM") || numbered("LPT");
    let is_hidden = name.starts_with('.') && name != ".gitignore";
    let turns = |c: char| {
        c.is_control()
            || "<>:\"/\\|?*\u{ad}\u{61c}\u{feff}".contains(c)
            || ('\u{200b}'..='\u{200f}').contains(&c)
            || ('\u{2028}'..='\u{202e}').contains(&c)
            || ('\u{2060}'..='\u{206f}').contains(&c)
    };
    !(name.is_empty()
        || name.len() > 255
        || is_device
        || is_hidden
        || name.starts_with(['-', ' '])
        || name.ends_with(['.', ' '])
        || name.contains(turns))
}
