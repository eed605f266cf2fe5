//! The chunks of a file that is here, as it is: nothing is packed and nothing kept, the host has it in memory already.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{CHUNK_BYTES, Chunk, ChunkSource, FetchError, PageMap};
use crate::PAGE_BYTES;

/// A file in chunks. Which of its pages are zeros is not looked for, so all count as stored: for those who copy zeros like anything else.
/// The file must not change, and is trusted like one that is mapped.
#[derive(Debug)]
pub struct FileSource {
    file: Arc<File>,
    length: u64,
}

impl FileSource {
    /// Takes a file that is open for reading.
    pub fn new(file: File) -> io::Result<FileSource> {
        let length = file.metadata()?.len();
        Ok(FileSource { file: Arc::new(file), length })
    }

    /// Bytes of the file in a chunk; none in one that is not there.
    fn bytes_in(&self, number: u32) -> u64 {
        self.length.saturating_sub(u64::from(number) * CHUNK_BYTES).min(CHUNK_BYTES)
    }
}

#[async_trait::async_trait]
impl ChunkSource for FileSource {
    fn length(&self) -> u64 {
        self.length
    }

    fn pages(&self, number: u32) -> PageMap {
        PageMap::first(self.bytes_in(number).div_ceil(PAGE_BYTES) as usize)
    }

    async fn chunk(&self, number: u32) -> Result<Arc<Chunk>, FetchError> {
        let failed = |source| FetchError::Read { number, source: Arc::new(source) };
        let (file, within, pages) = (Arc::clone(&self.file), self.bytes_in(number), self.pages(number));
        if within == 0 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let reading = tokio::task::spawn_blocking(move || {
            // The last page of the file is filled up with zeros.
            let mut bytes = vec![0; within.next_multiple_of(PAGE_BYTES) as usize];
            file.read_exact_at(&mut bytes[..within as usize], u64::from(number) * CHUNK_BYTES)?;
            Ok(bytes)
        });
        let bytes = reading.await.map_err(io::Error::other).flatten().map_err(failed)?;
        Chunk::new(number, pages, within as u32, Arc::new(bytes))
            .map(Arc::new)
            .map_err(|error| failed(io::Error::other(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::unpack;

    fn file_of(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[tokio::test]
    async fn its_chunks_are_the_file() {
        // Two chunks and a bit, with zeros in it that no hole stands for.
        let length = 2 * CHUNK_BYTES as usize + 3 * PAGE_BYTES as usize + 5;
        let mut bytes: Vec<u8> = (0..length).map(|at| (at / 1000) as u8 | 1).collect();
        bytes[8192..20480].fill(0);
        let source = FileSource::new(file_of(&bytes)).unwrap();
        assert_eq!(source.length(), length as u64);
        assert_eq!([0, 1, 2, 3].map(|number| source.pages(number).count()), [1024, 1024, 4, 0]);
        let copy = file_of(&vec![0; length]);
        for number in 0..3 {
            let chunk = source.chunk(number).await.unwrap();
            assert_eq!(*chunk.pages(), source.pages(number));
            unpack(&chunk, number, &copy).unwrap();
        }
        let mut read = vec![0; length];
        copy.read_exact_at(&mut read, 0).unwrap();
        assert!(read == bytes && copy.metadata().unwrap().len() == length as u64);
        assert!(matches!(source.chunk(3).await, Err(FetchError::Read { number: 3, .. })));
        assert!(source.chunk(u32::MAX).await.is_err());
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_told_of() {
        let file = file_of(&[1; 3 * PAGE_BYTES as usize]);
        let source = FileSource::new(file.try_clone().unwrap()).unwrap();
        file.set_len(PAGE_BYTES).unwrap();
        assert!(matches!(source.chunk(0).await, Err(FetchError::Read { .. })));
    }
}
