//! Encrypts and authenticates a file in chunks, so that the memory of writer and reader does not
//! depend on its size.
//!
//! ```text
//! magic | salt (32) | chunk ...        chunk: length (4, of what follows) | ciphertext | tag (16)
//! ```
//!
//! The key of a file is derived from the given key and the salt (HKDF-SHA256), so that a key may
//! seal any number of files. Chunks are sealed by ChaCha20-Poly1305 with their number as the nonce,
//! and with a flag for the last one, so that no chunk can be changed, removed or moved, and the
//! file cannot be truncated.

use std::io::{self, Read, Write};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::{Zeroize, Zeroizing};

const MAGIC: &[u8; 8] = b"gwseal1\n";
const SALT: usize = 32;
/// The size of a chunk before it is sealed.
const CHUNK: usize = 1 << 20;
/// The minimum size of a key.
pub(super) const KEY: usize = 32;

/// The context of the key derivation (`info` of HKDF).
const PURPOSE: &[u8] = b"gatewright last good";

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn key_of_file(key: &[u8], salt: &[u8]) -> io::Result<LessSafeKey> {
    if key.len() < KEY {
        return Err(broken("the key is shorter than 32 bytes"));
    }
    let derived = Salt::new(HKDF_SHA256, salt).extract(key);
    let mut bytes = Zeroizing::new([0; KEY]);
    let filled = derived
        .expand(&[PURPOSE], HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut *bytes));
    filled.map_err(|_| broken("the key cannot be derived"))?;
    debug_assert_eq!(HKDF_SHA256.len(), KEY);
    let key = UnboundKey::new(&CHACHA20_POLY1305, &*bytes)
        .map_err(|_| broken("the key cannot be used"))?;
    Ok(LessSafeKey::new(key))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn aad(is_last: bool) -> Aad<[u8; 1]> {
    Aad::from([u8::from(is_last)])
}

/// Seals the records that are written to it.
pub(super) struct Sealer<W> {
    out: W,
    key: LessSafeKey,
    number: u64,
    chunk: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    /// Begins a new file.
    pub(super) fn new(mut out: W, key: &[u8]) -> io::Result<Self> {
        let mut salt = [0; SALT];
        SystemRandom::new()
            .fill(&mut salt)
            .map_err(|_| broken("there is no randomness"))?;
        out.write_all(MAGIC)?;
        out.write_all(&salt)?;
        Ok(Self {
            out,
            key: key_of_file(key, &salt)?,
            number: 0,
            chunk: Vec::with_capacity(CHUNK),
        })
    }

    /// Adds a record, which is these parts one after the other.
    pub(super) fn record(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(length).map_err(|_| broken("a record of more than 4 GiB"))?;
        self.add(&length.to_be_bytes())?;
        parts.iter().try_for_each(|part| self.add(part))
    }

    fn add(&mut self, mut part: &[u8]) -> io::Result<()> {
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(CHUNK - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            part = later;
            if self.chunk.len() == CHUNK {
                self.seal(false)?;
            }
        }
        Ok(())
    }

    /// Returns the size of the file so far, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.number * CHUNK as u64 + self.chunk.len() as u64
    }

    /// Seals the last chunk.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.seal(true)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let sealed =
            self.key
                .seal_in_place_append_tag(nonce(self.number), aad(is_last), &mut self.chunk);
        sealed.map_err(|_| broken("a chunk cannot be sealed"))?;
        self.number += 1;
        let length = u32::try_from(self.chunk.len()).expect("a chunk is small");
        self.out.write_all(&length.to_be_bytes())?;
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }
}

impl<W> Drop for Sealer<W> {
    fn drop(&mut self) {
        self.chunk.zeroize();
    }
}

/// Reads the records of a file one by one. After an error, the records before it are authentic, but
/// not complete.
pub(super) struct Opener<R> {
    file: R,
    key: LessSafeKey,
    number: u64,
    /// The decrypted bytes, from the next record on.
    pending: Zeroizing<Vec<u8>>,
    at: usize,
    is_last: bool,
}

impl<R: Read> Opener<R> {
    /// Begins to read a file.
    pub(super) fn new(mut file: R, key: &[u8]) -> io::Result<Self> {
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(broken(
                "it is no file of this program, or of another version",
            ));
        }
        let mut salt = [0; SALT];
        file.read_exact(&mut salt)?;
        let key = key_of_file(key, &salt)?;
        Ok(Self {
            file,
            key,
            number: 0,
            pending: Zeroizing::default(),
            at: 0,
            is_last: false,
        })
    }

    /// Returns the next record; `None` after the last one.
    pub(super) fn record(&mut self) -> io::Result<Option<&[u8]>> {
        let record = loop {
            let rest = &self.pending[self.at..];
            if let Some((length, rest)) = rest.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length <= rest.len() {
                    let begin = self.at + 4;
                    break begin..begin + length;
                }
            }
            if self.is_last {
                let is_whole = rest.is_empty();
                return if is_whole {
                    Ok(None)
                } else {
                    Err(broken("it ends in the middle of a record"))
                };
            }
            self.open_chunk()?;
        };
        self.at = record.end;
        Ok(Some(&self.pending[record]))
    }

    /// Decrypts the next chunk, in place of the records that were returned.
    fn open_chunk(&mut self) -> io::Result<()> {
        let mut length = [0; 4];
        self.file.read_exact(&mut length)?;
        let sealed = u32::from_be_bytes(length) as usize;
        let full = CHUNK + CHACHA20_POLY1305.tag_len();
        if sealed > full {
            return Err(broken("a chunk is too long"));
        }
        self.is_last = sealed < full;
        let mut chunk = Zeroizing::new(vec![0; sealed]);
        self.file.read_exact(&mut chunk)?;
        let plain = self
            .key
            .open_in_place(nonce(self.number), aad(self.is_last), &mut chunk);
        let plain =
            plain.map_err(|_| broken("it was encrypted with another key, or was changed"))?;
        self.number += 1;
        self.pending.drain(..self.at);
        self.at = 0;
        self.pending.extend_from_slice(plain);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&[u8]; 2] = [&[7; KEY], &[8; KEY]];

    fn sealed(records: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut sealer = Sealer::new(&mut file, KEYS[0]).expect("begun");
        records
            .iter()
            .for_each(|record| sealer.record(&[record]).expect("sealed"));
        sealer.finish().expect("finished");
        file
    }

    fn opened(file: &[u8], key: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut records = Vec::new();
        let mut opener = Opener::new(file, key)?;
        while let Some(record) = opener.record()? {
            records.push(record.to_vec());
        }
        Ok(records)
    }

    #[test]
    fn records_of_all_sizes_come_back() {
        for sizes in [
            vec![],
            vec![0],
            vec![1, CHUNK, 3],
            vec![CHUNK - 4],
            vec![2 * CHUNK - 4, 5],
            vec![3 * CHUNK + 1],
        ] {
            let records: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0x5a; *size]).collect();
            let file = sealed(&records);
            assert!(
                opened(&file, KEYS[0]).expect("it is ours") == records,
                "{sizes:?}"
            );
            assert!(opened(&file, KEYS[1]).is_err(), "{sizes:?}: another key");
        }
    }

    #[test]
    fn nothing_of_it_is_readable_and_two_of_the_same_differ() {
        let secret = b"-----BEGIN PRIVATE KEY-----".repeat(100);
        let one = sealed(std::slice::from_ref(&secret));
        let two = sealed(std::slice::from_ref(&secret));
        assert!(one != two && !one.windows(16).any(|part| part == &secret[..16]));
    }

    #[test]
    fn a_changed_truncated_or_moved_file_is_rejected() {
        let file = sealed(&[vec![1; CHUNK - 4], vec![2; CHUNK - 4], vec![3; 9]]);
        assert_eq!(opened(&file, KEYS[0]).expect("whole").len(), 3);
        for at in [0, 9, 50, file.len() - 1] {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(opened(&changed, KEYS[0]).is_err(), "byte {at}");
        }
        let chunk = 4 + CHUNK + 16;
        let begin = MAGIC.len() + SALT;
        assert!(
            opened(&file[..begin + chunk], KEYS[0]).is_err(),
            "cut off after a chunk"
        );
        let moved = [
            &file[..begin],
            &file[begin + chunk..begin + 2 * chunk],
            &file[begin..begin + chunk],
            &file[begin + 2 * chunk..],
        ];
        assert!(
            opened(&moved.concat(), KEYS[0]).is_err(),
            "two chunks changed places"
        );
    }

    #[test]
    fn a_short_key_seals_nothing() {
        assert!(Sealer::new(Vec::new(), &[1; 31]).is_err());
    }
}
