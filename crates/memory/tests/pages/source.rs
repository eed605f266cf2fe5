//! A packed memory whose chunks can be held back or lost.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use memory::stream::{Chunk, ChunkSource, FetchError, Index, PageMap, pack};
use tokio::sync::watch;

use crate::PAGE;

/// Chunks of a file, from memory.
pub(crate) struct Source {
    index: Index,
    blob: Vec<u8>,
    held: watch::Sender<HashSet<u32>>,
    lost: Mutex<HashSet<u32>>,
    asked: watch::Sender<Vec<u32>>,
}

impl Source {
    pub(crate) fn new(bytes: &[u8]) -> Arc<Source> {
        let file = file_of(bytes);
        let mut blob = Vec::new();
        let index = pack(&file, &mut blob).unwrap();
        Arc::new(Source {
            index,
            blob,
            held: watch::Sender::default(),
            lost: Mutex::default(),
            asked: watch::Sender::default(),
        })
    }

    /// Chunks with these numbers are not given until [`Source::release`].
    pub(crate) fn hold(&self, chunks: &[u32]) {
        self.held.send_modify(|held| held.extend(chunks));
    }

    pub(crate) fn release(&self) {
        self.held.send_modify(HashSet::clear);
    }

    /// A chunk can never be had.
    pub(crate) fn lose(&self, chunk: u32) {
        self.lost.lock().unwrap().insert(chunk);
    }

    /// Every chunk that was asked for, in order.
    pub(crate) fn asked(&self) -> Vec<u32> {
        self.asked.borrow().clone()
    }

    pub(crate) async fn wait_until_asked(&self, chunk: u32) {
        self.asked.subscribe().wait_for(|asked| asked.contains(&chunk)).await.unwrap();
    }
}

#[async_trait::async_trait]
impl ChunkSource for Source {
    fn length(&self) -> u64 {
        self.index.length()
    }

    fn pages(&self, number: u32) -> PageMap {
        self.index.pages(number)
    }

    async fn chunk(&self, number: u32) -> Result<Arc<Chunk>, FetchError> {
        self.asked.send_modify(|asked| asked.push(number));
        self.held.subscribe().wait_for(|held| !held.contains(&number)).await.unwrap();
        if self.lost.lock().unwrap().contains(&number) {
            let source = Arc::new(std::io::Error::other("the store is gone"));
            return Err(FetchError::Failed { blob: "memory".to_owned(), number, tries: 3, source });
        }
        let range =
            self.index.blob_range(number).map_or(0..0, |range| range.start as usize..range.end as usize);
        Ok(Arc::new(self.index.verified(number, self.blob[range].to_vec()).unwrap()))
    }
}

/// A sparse file with these bytes.
pub(crate) fn file_of(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, page) in
        bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0))
    {
        file.write_all_at(page, (number * PAGE) as u64).unwrap();
    }
    file
}
