use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
};

use http::StatusCode;

/// What was served since start, for the metrics page. No names, no ids.
#[derive(Debug, Default)]
pub struct Counters {
    /// Answers by class: 1xx to 5xx.
    answers: [AtomicU64; 5],
    downloads: AtomicU64,
    downloads_cut: AtomicU64,
    bytes_sent: AtomicU64,
    uploads: AtomicU64,
    bytes_received: AtomicU64,
}

impl Counters {
    pub(super) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(count) = self.answers.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn download_begun(&self) {
        self.downloads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn download_cut(&self) {
        self.downloads_cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn uploaded(&self, bytes: u64) {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        self.bytes_received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The counters in the text form Prometheus reads.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::from("# TYPE holdfast_answers_total counter\n");
        for (class, count) in self.answers.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            // Writing to a string does not fail.
            writeln!(
                text,
                "holdfast_answers_total{{class=\"{}xx\"}} {count}",
                class + 1
            )
            .ok();
        }
        for (name, count) in [
            ("downloads", &self.downloads),
            ("downloads_cut", &self.downloads_cut),
            ("sent_bytes", &self.bytes_sent),
            ("uploads", &self.uploads),
            ("received_bytes", &self.bytes_received),
        ] {
            let count = count.load(Ordering::Relaxed);
            writeln!(
                text,
                "# TYPE holdfast_{name}_total counter\nholdfast_{name}_total {count}"
            )
            .ok();
        }
        text
    }
}
