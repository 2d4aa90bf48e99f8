//! The lines of a log, plain or in Zstandard frames, with the place each begins at.
//!
//! Reads by position on one descriptor and keeps no more than one chunk, one window and one line, so
//! memory does not grow with the file. A tail that is not there yet is told apart from damage.
//!
//! # Source
//! spec `DSH`, section 3, "Compression, torn tails"; RFC 8878.

use std::{
    collections::VecDeque,
    fmt,
    fs::File,
    io::{self, BufRead as _},
    os::unix::fs::FileExt as _,
};

use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use super::{limits::DshLimits, names::Encoding};
use crate::{beneath::Stamp, model::ByteCount};

/// How much is read from the file, and decoded, at a time.
const CHUNK: usize = 128 << 10;
/// How many of the last chunks read can be compared with the file again: 4 MiB, far more than DSH
/// writes, and rolls back, in one go.
const REMEMBERED: usize = 32;
/// What a Zstandard frame begins with.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Something that can be read at any position: a file, or bytes in a test.
pub(crate) trait ReadAt {
    /// Reads at `offset` into `buf`; nothing only at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether the content may be another than when reading began.
    fn moved(&self) -> io::Result<bool>;
}

/// An open log and what the system said of it when it was opened.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) file: File,
    pub(crate) stamp: Stamp,
}

impl ReadAt for LogFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn moved(&self) -> io::Result<bool> {
        Ok(Stamp::of(&self.file)? != self.stamp)
    }
}

impl ReadAt for &[u8] {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.get(offset..))
            .unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }

    fn moved(&self) -> io::Result<bool> {
        Ok(false)
    }
}

/// Where a line begins.
///
/// In a plain log the byte of the file, with nothing to skip; in a compressed one the byte at which
/// its frame begins, and how much of what the frame decodes to comes before the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) skip: u64,
}

/// Why no further line could be read.
#[derive(Debug)]
pub(crate) enum LineFault {
    /// The bytes are damaged, or past a bound; the text says which and where.
    Damaged(String),
    /// The file became shorter, or other, under the reader.
    Moved,
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for LineFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How the lines ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With the last byte.
    Clean,
    /// Within a line.
    InLine,
    /// Within the Zstandard frame that begins at this byte.
    InFrame(u64),
}

/// A reader of lines.
pub(crate) struct Lines<'a> {
    feed: Feed<'a>,
    line: Vec<u8>,
    limit: ByteCount,
    /// How many lines were given, and the most that are.
    given: u64,
    most: u64,
    end: Option<End>,
}

impl fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl<'a> Lines<'a> {
    /// The lines of `file` from `place` on, as if it ended at byte `len`.
    ///
    /// # Errors
    /// When no memory is left for a decoder.
    pub(crate) fn new(
        file: &'a dyn ReadAt,
        encoding: Encoding,
        place: Place,
        len: u64,
        limits: &DshLimits,
    ) -> Result<Self, LineFault> {
        Ok(Self {
            feed: Feed::new(file, encoding, place, len, limits)?,
            line: Vec::new(),
            limit: limits.line,
            given: 0,
            most: limits.rows,
            end: None,
        })
    }

    /// The next complete line without its newline, and where it begins.
    ///
    /// # Errors
    /// [`LineFault::Damaged`] for a damaged frame, a line past the bound, or more content than the
    /// bounds allow; [`LineFault::Moved`] when the file is shorter than it was.
    pub(crate) fn next(&mut self) -> Result<Option<(Place, &[u8])>, LineFault> {
        self.line.clear();
        let mut begins = None;
        while self.end.is_none() {
            let (place, mut chunk) = match self.feed.chunk()? {
                Ok(chunk) => chunk,
                Err(End::Clean) if !self.line.is_empty() => {
                    self.end = Some(End::InLine);
                    break;
                }
                Err(end) => {
                    self.end = Some(end);
                    break;
                }
            };
            let begins = *begins.get_or_insert(place);
            let n = chunk.read_until(b'\n', &mut self.line)?;
            self.feed.consume(n);
            let ended = self.line.pop_if(|byte| *byte == b'\n').is_some();
            if ByteCount::from(self.line.len()) > self.limit {
                let limit = self.limit;
                return Err(LineFault::Damaged(format!("a line is longer than {limit}")));
            }
            if ended {
                self.given = self.given.saturating_add(1);
                if self.given > self.most {
                    let text = format!("the log has more than {} lines", self.most);
                    return Err(LineFault::Damaged(text));
                }
                return Ok(Some((begins, &self.line)));
            }
        }
        Ok(None)
    }

    /// How the lines ended, once [`Lines::next`] has given none.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// Reads the last few MiB again and compares: proof that nothing of what was read was rolled
    /// back and written anew meanwhile.
    ///
    /// # Errors
    /// [`LineFault::Moved`] when it was.
    pub(crate) fn confirm(&self) -> Result<(), LineFault> {
        let mut again = vec![0; CHUNK];
        for (offset, len, sum) in &self.feed.input.seen {
            let part = again.get_mut(..*len).ok_or(LineFault::Moved)?;
            let mut filled = 0;
            while let Some(rest) = part.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                let at = offset.saturating_add(ByteCount::from(filled).get());
                match self.feed.input.file.read_at(rest, at)? {
                    0 => return Err(LineFault::Moved),
                    n => filled = filled.saturating_add(n),
                }
            }
            if crc32fast::hash(part) != *sum {
                return Err(LineFault::Moved);
            }
        }
        Ok(())
    }
}

/// The decoded content, a chunk at a time.
struct Feed<'a> {
    input: Input<'a>,
    frames: Option<Frames>,
    /// What comes before the first line and is passed over.
    skip: u64,
    decoded: u64,
    limit: ByteCount,
}

impl<'a> Feed<'a> {
    fn new(
        file: &'a dyn ReadAt,
        encoding: Encoding,
        place: Place,
        len: u64,
        limits: &DshLimits,
    ) -> Result<Self, LineFault> {
        let frames = match encoding {
            Encoding::Plain => None,
            Encoding::Zstd => Some(Frames::new(limits)?),
        };
        Ok(Self {
            input: Input {
                file,
                next: place.offset,
                len,
                chunk: Vec::new(),
                taken: 0,
                seen: VecDeque::new(),
            },
            frames,
            skip: place.skip,
            decoded: 0,
            limit: limits.log,
        })
    }

    /// What is decoded and not consumed, never empty, and its place; or how the content ended.
    fn chunk(&mut self) -> Result<Result<(Place, &[u8]), End>, LineFault> {
        loop {
            let Some(frames) = &mut self.frames else {
                // A plain log has nothing to skip: a place is a byte of the file.
                if self.input.available().is_empty() && !self.input.fill()? {
                    return Ok(Err(End::Clean));
                }
                let place = Place {
                    offset: self.input.offset(),
                    skip: 0,
                };
                return Ok(Ok((place, self.input.available())));
            };
            if frames.available().is_empty() {
                let before = frames.total;
                if let Some(end) = frames.decode(&mut self.input)? {
                    return Ok(Err(end));
                }
                self.decoded = self
                    .decoded
                    .saturating_add(frames.total.saturating_sub(before));
                if ByteCount::new(self.decoded) > self.limit {
                    let limit = self.limit;
                    return Err(LineFault::Damaged(format!(
                        "the log holds more than {limit}"
                    )));
                }
            }
            if self.skip > 0 {
                let n = ByteCount::from(frames.available().len())
                    .get()
                    .min(self.skip);
                frames.consume(usize::try_from(n).unwrap_or(usize::MAX));
                self.skip = self.skip.saturating_sub(n);
                continue;
            }
            break;
        }
        // Borrowed anew: the loop's borrow would last as long as what is returned.
        match &self.frames {
            Some(frames) => Ok(Ok((frames.place(), frames.available()))),
            None => Ok(Err(End::Clean)),
        }
    }

    fn consume(&mut self, n: usize) {
        match &mut self.frames {
            None => self.input.consume(n),
            Some(frames) => frames.consume(n),
        }
    }
}

/// The file's bytes, a chunk at a time.
struct Input<'a> {
    file: &'a dyn ReadAt,
    /// Where the next chunk begins.
    next: u64,
    len: u64,
    chunk: Vec<u8>,
    taken: usize,
    /// Place, length and checksum of the last chunks.
    seen: VecDeque<(u64, usize, u32)>,
}

impl Input<'_> {
    fn available(&self) -> &[u8] {
        self.chunk.get(self.taken..).unwrap_or_default()
    }

    fn consume(&mut self, n: usize) {
        self.taken = self.taken.saturating_add(n).min(self.chunk.len());
    }

    /// The position in the file of the first available byte.
    fn offset(&self) -> u64 {
        self.next
            .saturating_sub(ByteCount::from(self.available().len()).get())
    }

    /// Adds bytes behind the available ones; `false` at the end.
    fn fill(&mut self) -> Result<bool, LineFault> {
        let left = self.len.saturating_sub(self.next);
        if left == 0 {
            return Ok(false);
        }
        self.chunk.drain(..self.taken);
        self.taken = 0;
        let kept = self.chunk.len();
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        self.chunk.resize(kept.saturating_add(want), 0);
        let part = self.chunk.get_mut(kept..).unwrap_or_default();
        let n = self.file.read_at(part, self.next)?;
        if n == 0 {
            return Err(LineFault::Moved);
        }
        let sum = crc32fast::hash(part.get(..n).unwrap_or_default());
        self.chunk.truncate(kept.saturating_add(n));
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back((self.next, n, sum));
        self.next = self.next.saturating_add(ByteCount::from(n).get());
        Ok(true)
    }
}

/// A decoder of concatenated frames.
struct Frames {
    decoder: Decoder<'static>,
    /// Whether a frame has begun and not ended.
    open: bool,
    /// Where the present frame begins in the file.
    begins: u64,
    /// What the present frame has decoded to so far, and what all have.
    in_frame: u64,
    total: u64,
    out: Vec<u8>,
    /// The part of `out` that is decoded and not consumed.
    from: usize,
    to: usize,
    limit: ByteCount,
}

impl Frames {
    fn new(limits: &DshLimits) -> Result<Self, LineFault> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(limits.window_log))?;
        Ok(Self {
            decoder,
            open: false,
            begins: 0,
            in_frame: 0,
            total: 0,
            out: vec![0; CHUNK],
            from: 0,
            to: 0,
            limit: limits.frame,
        })
    }

    fn available(&self) -> &[u8] {
        self.out.get(self.from..self.to).unwrap_or_default()
    }

    fn consume(&mut self, n: usize) {
        self.from = self.from.saturating_add(n).min(self.to);
    }

    fn place(&self) -> Place {
        let left = ByteCount::from(self.available().len()).get();
        Place {
            offset: self.begins,
            skip: self.in_frame.saturating_sub(left),
        }
    }

    /// Decodes until something is available, or says how the frames ended.
    fn decode(&mut self, input: &mut Input<'_>) -> Result<Option<End>, LineFault> {
        loop {
            if !self.open {
                while input.available().len() < MAGIC.len() && input.fill()? {}
                match input.available() {
                    [] => return Ok(Some(End::Clean)),
                    few if few.len() < MAGIC.len() => {
                        return Ok(Some(End::InFrame(input.offset())));
                    }
                    bytes if bytes.starts_with(&MAGIC) => {}
                    _ => {
                        let at = input.offset();
                        let text = format!("no Zstandard frame begins at byte {at}");
                        return Err(LineFault::Damaged(text));
                    }
                }
                self.decoder.reinit()?;
                self.open = true;
                self.begins = input.offset();
                self.in_frame = 0;
            }
            if input.available().is_empty() {
                input.fill()?;
            }
            let status = self
                .decoder
                .run_on_buffers(input.available(), &mut self.out)
                .map_err(|error| {
                    let text = format!("the frame at byte {} is damaged: {error}", self.begins);
                    LineFault::Damaged(text)
                })?;
            input.consume(status.bytes_read);
            self.from = 0;
            self.to = status.bytes_written;
            let decoded = ByteCount::from(status.bytes_written).get();
            self.in_frame = self.in_frame.saturating_add(decoded);
            self.total = self.total.saturating_add(decoded);
            if ByteCount::new(self.in_frame) > self.limit {
                let text = format!(
                    "the frame at byte {} holds more than {}",
                    self.begins, self.limit
                );
                return Err(LineFault::Damaged(text));
            }
            self.open = status.remaining != 0;
            if self.to > 0 {
                return Ok(None);
            }
            if self.open && status.bytes_read == 0 && input.available().is_empty() && input.at_end()
            {
                return Ok(Some(End::InFrame(self.begins)));
            }
        }
    }
}

impl Input<'_> {
    fn at_end(&self) -> bool {
        self.next >= self.len
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{End, LineFault, Lines, Place, ReadAt};
    use crate::{
        journal::dsh::{limits::DshLimits, names::Encoding},
        model::ByteCount,
    };

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_checksum(true).unwrap();
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    type Read = (Vec<(Place, String)>, Result<Option<End>, String>);

    fn read(bytes: &[u8], encoding: Encoding, place: Place, limits: &DshLimits) -> Read {
        struct Part<'a>(&'a [u8]);
        impl ReadAt for Part<'_> {
            fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<usize> {
                // Short reads are honest too.
                let few = buf.len().min(7);
                self.0.read_at(&mut buf[..few], offset)
            }

            fn moved(&self) -> std::io::Result<bool> {
                Ok(false)
            }
        }
        let part = Part(bytes);
        let mut lines = Lines::new(
            &part,
            encoding,
            place,
            bytes.len().try_into().unwrap(),
            limits,
        )
        .unwrap();
        let mut all = Vec::new();
        loop {
            match lines.next() {
                Ok(Some((place, line))) => {
                    all.push((place, String::from_utf8_lossy(line).into_owned()));
                }
                Ok(None) => break,
                Err(LineFault::Damaged(text)) => return (all, Err(text)),
                Err(other) => panic!("{other:?}"),
            }
        }
        lines.confirm().unwrap();
        (all, Ok(lines.end()))
    }

    #[test]
    fn a_log_read_from_the_place_of_any_line_gives_the_lines_from_there() {
        let batches: [&[u8]; 4] = [b"head\n", b"one\ntwo\n", b"", b"three\nfo"];
        let plain = [&batches.concat()[..], b"ur\nfive"].concat();
        let mut packed: Vec<u8> = batches.iter().flat_map(|batch| frame(batch)).collect();
        packed.extend(frame(b"ur\nfive"));
        let limits = DshLimits::default();
        for (bytes, encoding) in [(plain, Encoding::Plain), (packed, Encoding::Zstd)] {
            let (all, end) = read(&bytes, encoding, Place::default(), &limits);
            let texts: Vec<_> = all.iter().map(|(_, line)| line.as_str()).collect();
            assert_eq!(
                texts,
                ["head", "one", "two", "three", "four"],
                "{encoding:?}"
            );
            assert_eq!(end, Ok(Some(End::InLine)), "{encoding:?}");
            for (index, (place, _)) in all.iter().enumerate() {
                let (rest, _) = read(&bytes, encoding, *place, &limits);
                assert_eq!(rest, all[index..], "{encoding:?} from {place:?}");
            }
        }
    }

    #[test]
    fn a_log_cut_at_any_byte_gives_a_prefix_of_its_lines_and_is_never_damaged() {
        let first = frame(b"head\n");
        let packed: Vec<u8> = [&first[..], &frame(b"one\ntwo\n"), &frame(b"three\n")].concat();
        let limits = DshLimits::default();
        for (bytes, encoding) in [
            (b"head\none\ntwo\nthree\n".to_vec(), Encoding::Plain),
            (packed, Encoding::Zstd),
        ] {
            let (all, _) = read(&bytes, encoding, Place::default(), &limits);
            for cut in 0..bytes.len() {
                let (some, end) = read(&bytes[..cut], encoding, Place::default(), &limits);
                assert!(all.starts_with(&some), "{encoding:?} cut at {cut}");
                assert!(end.is_ok(), "{encoding:?} cut at {cut}: {end:?}");
            }
        }
    }

    #[test]
    fn a_changed_byte_in_a_complete_frame_is_damage() {
        let packed: Vec<u8> = [&frame(b"head\n")[..], &frame(b"one\ntwo\n")].concat();
        let limits = DshLimits::default();
        let (honest, _) = read(&packed, Encoding::Zstd, Place::default(), &limits);
        for at in 0..packed.len() {
            let mut bytes = packed.clone();
            bytes[at] ^= 0x10;
            let (lines, end) = read(&bytes, Encoding::Zstd, Place::default(), &limits);
            // A length made larger looks like a tail that is not there yet; never like other lines
            // of a frame that was checked.
            assert!(
                end != Ok(Some(End::Clean)) || lines == honest,
                "changed at {at}: {lines:?} {end:?}"
            );
        }
        let mut stray = packed.clone();
        stray.extend(b"abc");
        let (lines, end) = read(&stray, Encoding::Zstd, Place::default(), &limits);
        assert_eq!(
            (lines.len(), end),
            (
                3,
                Ok(Some(End::InFrame(ByteCount::from(packed.len()).get())))
            )
        );
        stray.push(b'd');
        let (_, end) = read(&stray, Encoding::Zstd, Place::default(), &limits);
        assert!(end.unwrap_err().starts_with("no Zstandard frame begins"));
    }

    /// Keeps I11.
    #[test]
    fn what_passes_a_bound_is_refused_before_it_is_kept() {
        let limits = DshLimits {
            line: ByteCount::kib(64),
            frame: ByteCount::mib(1),
            log: ByteCount::mib(2),
            window_log: 21,
            ..DshLimits::default()
        };
        let zeros = vec![0; 4 << 20];
        let blank = vec![b'\n'; 900 << 10];
        let many: Vec<u8> = (0..3).flat_map(|_| frame(&blank)).collect();
        for (bytes, encoding, said) in [
            (
                zeros.clone(),
                Encoding::Plain,
                "a line is longer than 64.0 KiB",
            ),
            (
                frame(&zeros),
                Encoding::Zstd,
                "a line is longer than 64.0 KiB",
            ),
            (
                frame(&vec![b'\n'; 1_100_000]),
                Encoding::Zstd,
                "the frame at byte 0 holds more than 1.0 MiB",
            ),
            (many, Encoding::Zstd, "the log holds more than 2.0 MiB"),
        ] {
            let whole: &[u8] = &bytes;
            let len = bytes.len().try_into().unwrap();
            let mut lines = Lines::new(&whole, encoding, Place::default(), len, &limits).unwrap();
            let fault = loop {
                match lines.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("read to the end"),
                    Err(fault) => break fault,
                }
            };
            assert!(
                matches!(&fault, LineFault::Damaged(text) if text == said),
                "{fault:?}, not {said}"
            );
        }
        // A window past the bound is refused by the frame's head.
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(24).unwrap();
        encoder.write_all(&zeros).unwrap();
        let (lines, end) = read(
            &encoder.finish().unwrap(),
            Encoding::Zstd,
            Place::default(),
            &limits,
        );
        assert!(lines.is_empty() && end.unwrap_err().contains("too much memory"));
    }
}
