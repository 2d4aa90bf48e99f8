//! Folder names of a DSH sessions root.

use holdfast::journal::dsh::{LogName, project_folder, session_folder, session_id};

/// A folder is one id's or nobody's; an id's folder is one plain component and is read back; a file
/// name that is a log's is spelled in one way.
pub fn check(data: &[u8]) {
    if let Some(id) = session_id(data) {
        assert_eq!(session_folder(&id).as_bytes(), data);
    }
    if let Some(name) = LogName::parse(data) {
        assert_eq!(name.file_name().as_bytes(), data);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let project = project_folder(Some(text));
    assert_eq!(project.is_none(), text.is_empty());
    if let Some(project) = project {
        assert_plain(&project);
        assert!(project.len() <= 255 && project.starts_with("--") && project.ends_with("--"));
    }
    if !text.is_empty() {
        let folder = session_folder(text);
        assert_plain(&folder);
        assert_eq!(session_id(folder.as_bytes()).as_deref(), Some(text));
    }
}

fn assert_plain(folder: &str) {
    assert!(folder != "." && folder != "..", "{folder}");
    assert!(
        folder
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'~')),
        "{folder}"
    );
}
