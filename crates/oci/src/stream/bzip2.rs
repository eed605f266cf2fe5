//! bzip2, as old archives are compressed. Written here: one of the crates for it has a licence of its own that is not among those the
//! project is built from, the other is not maintained.
//!
//! A stream is a row of blocks of at most 900,000 bytes, each on its own: repeats, then sorted by what follows (Burrows and Wheeler),
//! then moved to the front, then Huffman codes. Undone in the opposite order. Memory is bounded by the size of a block, whatever a file
//! says, and every block's checksum is compared.

use std::io::{self, BufRead, Read};

const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
const BLOCK_BYTES_UNIT: usize = 100_000;
/// Symbols that are decoded with one table before the next is chosen.
const GROUP: usize = 50;
const TABLES_MAX: usize = 6;
const CODE_BITS_MAX: usize = 20;
/// So many equal bytes are followed by how many more there are.
const REPEAT: u32 = 4;

/// Streams one after the other.
pub(super) struct Bzip2<R> {
    bits: Bits<R>,
    /// Bytes that a block of this stream may have; 0 between streams.
    block_bytes_max: usize,
    block: Block,
    /// Over the checksums of the stream's blocks.
    checksum: u32,
}

/// A block whose bytes are being given out.
#[derive(Default)]
struct Block {
    /// The byte at each place, and above it the place of the byte that comes next.
    chain: Vec<u32>,
    at: u32,
    left: usize,
    /// The byte given out last, and how often in a row.
    last: u8,
    row: u32,
    repeats: u32,
    sum: u32,
    expected: u32,
}

struct Bits<R> {
    source: R,
    held: u64,
    count: u32,
}

/// A table of Huffman codes: shorter ones are smaller numbers.
struct Codes {
    /// For each length the first number that is too large for it.
    limits: [u32; CODE_BITS_MAX + 1],
    /// For each length what to subtract from a number to get its symbol's place.
    offsets: [i64; CODE_BITS_MAX + 1],
    symbols: Vec<u16>,
}

fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged bzip2: {what}"))
}

const SUMS: [u32; 256] = {
    let mut sums = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000_0000 == 0 { sum << 1 } else { (sum << 1) ^ 0x04c1_1db7 };
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
};

impl<R: BufRead> Bits<R> {
    /// The next bits, at most 32.
    fn take(&mut self, count: u32) -> io::Result<u32> {
        while self.count < count {
            let byte = *self.source.fill_buf()?.first().ok_or(io::ErrorKind::UnexpectedEof)?;
            self.source.consume(1);
            self.held = (self.held << 8) | u64::from(byte);
            self.count += 8;
        }
        self.count -= count;
        let value = self.held >> self.count;
        self.held &= (1 << self.count) - 1;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    fn bit(&mut self) -> io::Result<bool> {
        Ok(self.take(1)? == 1)
    }

    fn small(&mut self, count: u32) -> io::Result<usize> {
        Ok(self.take(count)? as usize)
    }

    /// Whether nothing follows. Only between streams, which begin with a whole byte.
    fn is_over(&mut self) -> io::Result<bool> {
        (self.held, self.count) = (0, 0);
        Ok(self.source.fill_buf()?.is_empty())
    }
}

impl Codes {
    /// From the length of each symbol's code.
    fn new(lengths: &[usize]) -> io::Result<Self> {
        let mut counts = [0u32; CODE_BITS_MAX + 1];
        for length in lengths {
            counts[*length] += 1;
        }
        let mut codes =
            Self { limits: [0; CODE_BITS_MAX + 1], offsets: [0; CODE_BITS_MAX + 1], symbols: Vec::new() };
        let (mut code, mut place) = (0u32, 0u32);
        for (bits, count) in counts.into_iter().enumerate().skip(1) {
            code <<= 1;
            codes.offsets[bits] = i64::from(code) - i64::from(place);
            code += count;
            place += count;
            if code > 1 << bits {
                return Err(damaged("codes that cannot be told apart"));
            }
            codes.limits[bits] = code;
            let of_length = lengths.iter().enumerate().filter(|(_, length)| **length == bits);
            codes.symbols.extend(of_length.map(|(symbol, _)| symbol as u16));
        }
        Ok(codes)
    }

    fn next<R: BufRead>(&self, bits: &mut Bits<R>) -> io::Result<usize> {
        let mut code = 0;
        for length in 1..=CODE_BITS_MAX {
            code = (code << 1) | bits.take(1)?;
            // Those of a shorter length were smaller, so that what is below the limit is of this one.
            if code < self.limits[length] {
                let place = usize::try_from(i64::from(code) - self.offsets[length]).ok();
                let symbol = place.and_then(|place| self.symbols.get(place));
                return symbol.map(|symbol| usize::from(*symbol)).ok_or_else(|| damaged("an unknown code"));
            }
        }
        Err(damaged("an unknown code"))
    }
}

impl<R: BufRead> Bzip2<R> {
    pub(super) fn new(source: R) -> Self {
        let bits = Bits { source, held: 0, count: 0 };
        Self { bits, block_bytes_max: 0, block: Block::default(), checksum: 0 }
    }

    /// Begins the next block, in the next stream if this one is over; false when there is none.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.block_bytes_max == 0 {
                if self.bits.is_over()? {
                    return Ok(false);
                }
                let (name, level) = (self.bits.take(24)?, self.bits.take(8)?);
                if name.to_be_bytes()[1..] != *super::BZIP2 || !(0x31..=0x39).contains(&level) {
                    return Err(damaged("no stream where one should be"));
                }
                self.block_bytes_max = (level as usize - 0x30) * BLOCK_BYTES_UNIT;
                self.checksum = 0;
            }
            match (u64::from(self.bits.take(24)?) << 24) | u64::from(self.bits.take(24)?) {
                BLOCK => {
                    self.read_block()?;
                    return Ok(true);
                }
                END if self.bits.take(32)? != self.checksum => {
                    return Err(damaged("wrong checksum of a stream"));
                }
                END => self.block_bytes_max = 0,
                _ => return Err(damaged("no block where one should be")),
            }
        }
    }

    fn read_block(&mut self) -> io::Result<()> {
        let expected = self.bits.take(32)?;
        if self.bits.bit()? {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "blocks of the oldest bzip2 are not understood",
            ));
        }
        let first = self.bits.small(24)?;
        let mut front = self.used_bytes()?;
        let tables = self.bits.small(3)?;
        if !(2..=TABLES_MAX).contains(&tables) {
            return Err(damaged("a wrong number of tables"));
        }
        let selectors = self.selectors(tables)?;
        let symbols = front.len() + 2;
        let codes = (0..tables).map(|_| self.codes(symbols)).collect::<io::Result<Vec<Codes>>>()?;

        let mut chain = std::mem::take(&mut self.block.chain);
        chain.clear();
        let (mut run, mut weight) = (0usize, 1usize);
        let (mut table, mut in_group, mut selectors) = (None, 0, selectors.into_iter());
        loop {
            if in_group == 0 {
                table = selectors.next().and_then(|selected| codes.get(usize::from(selected)));
                in_group = GROUP;
            }
            in_group -= 1;
            let symbol = table.ok_or_else(|| damaged("more symbols than tables"))?.next(&mut self.bits)?;
            // The first two symbols are the digits of how often the foremost byte comes.
            if symbol < 2 {
                run += weight << symbol;
                weight <<= 1;
                if run > self.block_bytes_max {
                    return Err(damaged("a block that is too long"));
                }
                continue;
            }
            if chain.len() + run > self.block_bytes_max {
                return Err(damaged("a block that is too long"));
            }
            chain.resize(chain.len() + run, u32::from(front[0]));
            (run, weight) = (0, 1);
            if symbol == symbols - 1 {
                break;
            }
            if chain.len() == self.block_bytes_max {
                return Err(damaged("a block that is too long"));
            }
            front[..symbol].rotate_right(1);
            chain.push(u32::from(front[0]));
        }
        self.checksum = self.checksum.rotate_left(1) ^ expected;
        self.block = Block::new(chain, first, expected)?;
        Ok(())
    }

    /// Which bytes the block has: sixteen bits for sixteen rows of sixteen bits.
    fn used_bytes(&mut self) -> io::Result<Vec<u8>> {
        let rows = self.bits.take(16)?;
        let mut used = Vec::with_capacity(256);
        for row in (0..16u8).filter(|row| rows & (0x8000 >> row) != 0) {
            let bytes = self.bits.take(16)?;
            used.extend((0..16u8).filter(|byte| bytes & (0x8000 >> byte) != 0).map(|byte| row * 16 + byte));
        }
        if used.is_empty() { Err(damaged("a block without bytes")) } else { Ok(used) }
    }

    /// Which table each group of symbols uses.
    fn selectors(&mut self, tables: usize) -> io::Result<Vec<u8>> {
        let count = self.bits.small(15)?;
        let mut front: Vec<u8> = (0..TABLES_MAX as u8).take(tables).collect();
        let mut selectors = Vec::with_capacity(count);
        for _ in 0..count {
            let mut place = 0;
            while self.bits.bit()? {
                place += 1;
                if place == tables {
                    return Err(damaged("a table that is not there"));
                }
            }
            front[..=place].rotate_right(1);
            selectors.push(front[0]);
        }
        Ok(selectors)
    }

    fn codes(&mut self, symbols: usize) -> io::Result<Codes> {
        let mut length = self.bits.small(5)?;
        let mut lengths = Vec::with_capacity(symbols);
        for _ in 0..symbols {
            loop {
                if !(1..=CODE_BITS_MAX).contains(&length) {
                    return Err(damaged("a code of a wrong length"));
                }
                if !self.bits.bit()? {
                    break;
                }
                length = if self.bits.bit()? { length - 1 } else { length + 1 };
            }
            lengths.push(length);
        }
        Codes::new(&lengths)
    }
}

impl Block {
    /// Finds what follows each byte: sorting the bytes gives what came before them, in the same order.
    fn new(mut chain: Vec<u32>, first: usize, expected: u32) -> io::Result<Self> {
        let mut places = [0u32; 257];
        for entry in &chain {
            places[*entry as usize + 1] += 1;
        }
        for byte in 1..places.len() {
            places[byte] += places[byte - 1];
        }
        for index in 0..chain.len() {
            let byte = chain[index] as usize & 0xff;
            let place = places[byte] as usize;
            places[byte] += 1;
            // A place is below 2²⁴, as blocks are shorter.
            chain[place] |= (index as u32) << 8;
        }
        let at = *chain.get(first).ok_or_else(|| damaged("a block that begins after its end"))? >> 8;
        let left = chain.len();
        Ok(Self { chain, at, left, sum: u32::MAX, expected, ..Self::default() })
    }

    /// Gives out as much as there is room for; how much.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.repeats > 0 {
                self.repeats -= 1;
            } else if self.left > 0 {
                let entry = self.chain[self.at as usize];
                (self.at, self.left) = (entry >> 8, self.left - 1);
                let byte = entry as u8;
                if self.row == REPEAT {
                    (self.repeats, self.row) = (u32::from(byte), 0);
                    continue;
                }
                self.row = if byte == self.last && self.row > 0 { self.row + 1 } else { 1 };
                self.last = byte;
            } else {
                break;
            }
            self.sum = (self.sum << 8) ^ SUMS[((self.sum >> 24) as u8 ^ self.last) as usize];
            buffer[filled] = self.last;
            filled += 1;
        }
        if filled == 0 && !self.sum != self.expected && !self.chain.is_empty() {
            return Err(damaged("wrong checksum of a block"));
        }
        Ok(filled)
    }
}

impl<R: BufRead> Read for Bzip2<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let count = self.block.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            if !self.begin()? {
                return Ok(0);
            }
        }
    }
}
