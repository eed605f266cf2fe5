//! xz, as archives outside of images are often compressed.

use std::io::{self, BufRead, Read};

use xz4rust::{DICT_SIZE_PROFILE_0, XzDecoder};

/// Most memory for a dictionary: twice what `xz -9` makes. A stream that asks for more is refused.
const DICTIONARY_BYTES_MAX: usize = 128 << 20;

/// Streams one after the other, with zeros between them.
pub(super) struct Xz<R> {
    source: R,
    decoder: XzDecoder<'static>,
    in_stream: bool,
}

impl<R: BufRead> Xz<R> {
    pub(super) fn new(source: R) -> Self {
        let decoder = XzDecoder::with_alloc_dict_size(DICT_SIZE_PROFILE_0, DICTIONARY_BYTES_MAX);
        Self { source, decoder, in_stream: false }
    }

    /// Begins the next stream; false when there is none.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            let input = self.source.fill_buf()?;
            let zeros = input.iter().take_while(|byte| **byte == 0).count();
            if zeros < input.len() || input.is_empty() {
                let more = !input.is_empty();
                self.source.consume(zeros);
                self.decoder.reset();
                return Ok(more);
            }
            self.source.consume(zeros);
        }
    }
}

impl<R: BufRead> Read for Xz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_stream && !self.begin()? {
                return Ok(0);
            }
            self.in_stream = true;
            let input = self.source.fill_buf()?;
            let is_over = input.is_empty();
            let damaged =
                |error: xz4rust::XzError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            let step = self.decoder.decode(input, buffer).map_err(damaged)?;
            self.source.consume(step.input_consumed());
            self.in_stream = !step.is_end_of_stream();
            if step.output_produced() > 0 {
                return Ok(step.output_produced());
            }
            if self.in_stream && (is_over || !step.made_progress()) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
