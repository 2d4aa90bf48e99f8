//! Uploads a file as it is read: memory does not grow with its size.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use axum::body::{Body, Bytes};
use futures_util::stream;
use http::{Method, header};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::{
    client::{Client, read_json, segment, succeeded},
    exit::{Exit, Failure},
    output,
};
use crate::model::{AttachmentId, Digester, FileName, SessionHandle};

/// How much is read at a time, in bytes.
const BLOCK: usize = 1 << 16;

/// What the server stored, checked against what was sent.
pub(super) async fn put(
    client: &Client,
    session: SessionHandle,
    file: &Path,
    name: Option<&str>,
) -> Result<Value, Failure> {
    let name = attachment_name(file, name)?;
    let (source, length) = if file.as_os_str() == "-" {
        let stdin = rustix::io::dup(io::stdin())
            .map_err(|errno| Failure::io("standard input", &errno.into()))?;
        (File::from(stdin), None)
    } else {
        open(file)?
    };
    let sent = Sent::default();
    let path = format!(
        "/v1/sessions/{session}/attachments?name={}",
        segment(name.as_str())
    );
    let mut request = client
        .request(Method::POST, &path)
        .header(header::CONTENT_TYPE, "application/octet-stream");
    if let Some(length) = length {
        request = request.header(header::CONTENT_LENGTH, length);
    }
    let request = request
        .body(body(source, length, sent.clone()))
        .map_err(|error| Failure::of(Exit::Usage, &error))?;
    let stored = read_json(succeeded(client.send(request).await?).await?).await?;
    let (id, bytes) = sent.finish();
    let says = |key: &str| stored.get(key).cloned().unwrap_or_default();
    if says("attachmentId") != json!(id) || says("bytes") != json!(bytes) {
        let message = format!(
            "{bytes} bytes of {id} were sent, and the server says it stored {} of {}",
            output::shown(&says("bytes").to_string()),
            output::shown(&says("attachmentId").to_string()),
        );
        return Err(Failure::new(Exit::Damaged, message));
    }
    Ok(stored)
}

fn attachment_name(file: &Path, name: Option<&str>) -> Result<FileName, Failure> {
    let usage = |why: String| Failure::new(Exit::Usage, why);
    let name = match name {
        Some(name) => name,
        None if file.as_os_str() == "-" => {
            return Err(usage(
                "standard input has no name; give one with --name".to_owned(),
            ));
        }
        None => file
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| {
                usage("the file's name is not UTF-8; give one with --name".to_owned())
            })?,
    };
    FileName::parse(name).map_err(|error| usage(format!("the attachment's name: {error}")))
}

/// Opens the person's file, and says how long it is when it is a plain one.
fn open(path: &Path) -> Result<(File, Option<u64>), Failure> {
    let failed = |error: &io::Error| Failure::io(path.display(), error);
    #[expect(
        clippy::disallowed_methods,
        reason = "the person names a file of their own, by a path of their own"
    )]
    let file = File::open(path).map_err(|error| failed(&error))?;
    let facts = file.metadata().map_err(|error| failed(&error))?;
    if facts.is_dir() {
        let message = format!("{} is a directory", path.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok((file, facts.is_file().then_some(facts.len())))
}

/// What went out so far.
#[derive(Clone, Debug, Default)]
struct Sent(Arc<Mutex<(Digester, u64)>>);

impl Sent {
    fn note(&self, bytes: &[u8]) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.0.update(bytes);
        sent.1 = sent
            .1
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    fn finish(&self) -> (AttachmentId, u64) {
        let sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (AttachmentId::new(sent.0.clone().finish()), sent.1)
    }
}

/// The source as a body: at most `length` bytes of it, and an error when there are fewer, so that a
/// file that shrinks meanwhile is not taken for a shorter one.
fn body(source: File, length: Option<u64>, sent: Sent) -> Body {
    let source = tokio::fs::File::from_std(source).take(length.unwrap_or(u64::MAX));
    Body::from_stream(stream::try_unfold(
        (source, sent),
        move |(mut source, sent)| async move {
            let mut block = vec![0; BLOCK];
            let read = source.read(&mut block).await?;
            if read == 0 {
                let missing = length.is_some() && source.limit() > 0;
                return if missing {
                    Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the file shrank",
                    ))
                } else {
                    Ok(None)
                };
            }
            block.truncate(read);
            sent.note(&block);
            Ok(Some((Bytes::from(block), (source, sent))))
        },
    ))
}
