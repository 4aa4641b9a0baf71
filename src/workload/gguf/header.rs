//! What stands before the weights of one GGUF file.
//!
//! Nothing in a file is believed: a count never sizes an allocation, every length is held against what is left of the
//! file, and arrays within arrays are walked with a short list of our own.
//!
//! Source: `ggml/include/gguf.h` of llama.cpp. Magic, version, number of tensors, number of keys; then keys with typed
//! values, then tensors (name, shape with the row length first, type, offset from the start of the data). The data starts
//! at the next multiple of `general.alignment`, 32 by default.

use super::storage::Storage;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};

/// No model's header comes near it; a file of zeros would otherwise be read to its end.
const MOST_BYTES: u64 = 256 << 20;
/// Longest name or key; GGUF allows keys of 65,535 bytes.
const MOST_NAME: u64 = u16::MAX as u64;
/// Longer texts (templates of chats) are skipped.
const MOST_TEXT: u64 = 1024;
/// ggml's tensors have no more dimensions.
const MOST_DIMENSIONS: u32 = 4;
/// Arrays within arrays; llama.cpp reads none.
const MOST_NESTED: usize = 8;
/// More weights than any tensor can have: keeps products of sizes within 64 bits.
const MOST_WEIGHTS: u64 = 1 << 50;
/// Of types that we do not know; the smallest known take a bit a weight.
const MOST_WEIGHTS_IN_A_BYTE: u64 = 64;
/// Where the data starts, and each tensor in it, unless the file says otherwise.
const ALIGNMENT: u64 = 32;

/// The header of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The version of the format, 2 or 3.
    pub version: u32,
    /// Keys with scalar values; arrays and long texts are left out.
    pub values: BTreeMap<String, Value>,
    /// Tensors in the file's order.
    pub tensors: Vec<TensorInfo>,
}

/// A value that is no array.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any width, not negative.
    Number(u64),
    /// Negative, or a float of any width.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A short text.
    Text(String),
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Its full name.
    pub name: String,
    /// Row length first; one to four dimensions, none of them 0.
    pub shape: Vec<u64>,
    /// Its type.
    pub storage: Storage,
    /// Bytes of a row. Of an unknown type it is the room up to the next tensor, divided by the rows: with fewer rows than
    /// the alignment has bytes, padding may be in it.
    pub row_bytes: u64,
}

impl TensorInfo {
    /// Rows of all dimensions but the first.
    pub fn rows(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.rows() * self.row_bytes
    }
}

/// An error about a model file.
pub(super) fn unusable(file: &str, reason: impl std::fmt::Display, advice: &str) -> Error {
    Error::usage(format!("read the model file {file}"), reason, advice)
}

/// What to do about a file that is broken.
pub(super) const AGAIN: &str = "get the file again, or write it anew";

struct Source<'a, R> {
    reader: R,
    file: &'a str,
    position: u64,
    length: u64,
}

impl Header {
    /// Reads the header of the file called `file`, whose bytes are those of `reader` from its beginning to its end.
    ///
    /// # Errors
    /// A usage error for anything that is not a whole GGUF file of version 2 or 3 in this byte order.
    pub fn read<R: Read + Seek>(mut reader: R, file: &str) -> Result<Header> {
        let length = reader.seek(SeekFrom::End(0)).and_then(|length| reader.rewind().map(|()| length));
        let length =
            length.map_err(|error| unusable(file, error, "name a file that can be read from its beginning"))?;
        let mut source = Source { reader, file, position: 0, length };
        if length < 4 || source.bytes::<4>()? != *b"GGUF" {
            return Err(unusable(file, "it does not begin with GGUF", "name a GGUF file"));
        }
        let version = source.u32()?;
        match version {
            2 | 3 => {}
            _ if matches!(version.swap_bytes(), 1..=0xffff) => {
                return Err(unusable(
                    file,
                    "its numbers are big-endian, and those of this program and of llama.cpp here are little-endian",
                    "convert it with gguf_convert_endian.py of llama.cpp",
                ));
            }
            _ => {
                let advice = "convert the model again with a present llama.cpp, or tell us about the new version";
                return Err(unusable(file, format!("it has version {version} of the format, not 2 or 3"), advice));
            }
        }
        let (tensors, keys) = (source.u64()?, source.u64()?);
        // A tensor takes no less than 32 bytes here, and a key 13.
        source.can_hold(tensors, 32, "tensors")?;
        source.can_hold(keys, 13, "keys")?;
        let mut all = BTreeMap::new();
        for _ in 0..keys {
            let key = source.text(MOST_NAME)?;
            if all.contains_key(&key) {
                return Err(source.broken(format!("it has the key '{key}' twice")));
            }
            let value = source.value()?;
            all.insert(key, value);
        }
        let values: BTreeMap<String, Value> =
            all.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))).collect();
        let alignment = match values.get("general.alignment") {
            None => ALIGNMENT,
            Some(Value::Number(bytes)) if bytes.is_power_of_two() && *bytes <= 1 << 20 => *bytes,
            Some(other) => {
                return Err(source.broken(format!("it aligns tensors to {other:?}, which is no power of two")));
            }
        };
        let mut infos = Vec::new();
        for _ in 0..tensors {
            infos.push(source.tensor(alignment)?);
        }
        let start = source.position.next_multiple_of(alignment);
        let tensors = place(infos, length.saturating_sub(start)).map_err(|reason| unusable(file, reason, AGAIN))?;
        Ok(Header { version, values, tensors })
    }
}

/// Sizes tensors by their types, or by their places; refuses those that overlap or end after `data` bytes.
fn place(mut infos: Vec<(TensorInfo, u64)>, data: u64) -> std::result::Result<Vec<TensorInfo>, String> {
    let mut order: Vec<(u64, usize)> = infos.iter().enumerate().map(|(index, (_, offset))| (*offset, index)).collect();
    order.sort_unstable();
    for (position, (offset, index)) in order.iter().enumerate() {
        let next = order.get(position + 1).map(|(next, _)| *next);
        let (info, _) = &mut infos[*index];
        let room = next.unwrap_or(data).min(data).saturating_sub(*offset);
        match (info.storage, info.storage.row_bytes(info.shape[0])) {
            (Storage::Unknown(_), _) => info.row_bytes = room / info.rows(),
            (_, Some(row_bytes)) => info.row_bytes = row_bytes,
            (storage, None) => {
                let row = info.shape[0];
                return Err(format!("rows of {row} weights of '{}' are no whole blocks of {storage}", info.name));
            }
        }
        let (name, bytes) = (&info.name, info.bytes());
        // A row of a known type has at least a byte; of an unknown one, some for its weights.
        let has_room = info.row_bytes >= info.shape[0].div_ceil(MOST_WEIGHTS_IN_A_BYTE);
        if *offset + bytes > data || (!has_room && next.is_none()) {
            return Err(format!("it is truncated: '{name}' ends after its {data} bytes of data"));
        }
        if bytes > room || !has_room {
            return Err(format!("'{name}' overlaps the tensor that starts {offset} bytes into the data or just after"));
        }
    }
    Ok(infos.into_iter().map(|(info, _)| info).collect())
}

impl<R: Read + Seek> Source<'_, R> {
    fn broken(&self, reason: impl std::fmt::Display) -> Error {
        unusable(self.file, reason, AGAIN)
    }

    fn left(&self) -> u64 {
        self.length.min(MOST_BYTES).saturating_sub(self.position)
    }

    /// Moves on by `bytes`, if there are so many.
    fn advance(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.left() {
            let reason = if self.length > MOST_BYTES {
                format!("its header goes on after {MOST_BYTES} bytes, which no model's does")
            } else {
                format!("it is truncated: its header goes on after its {} bytes", self.length)
            };
            return Err(self.broken(reason));
        }
        self.position += bytes;
        Ok(())
    }

    fn can_hold(&self, count: u64, least_bytes: u64, what: &str) -> Result<()> {
        if count > self.left() / least_bytes {
            return Err(self.broken(format!("it claims {count} {what}, more than its {} bytes can hold", self.length)));
        }
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.advance(buffer.len() as u64)?;
        self.reader.read_exact(buffer).map_err(|error| unusable(self.file, error, AGAIN))
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        self.advance(bytes)?;
        // Below MOST_BYTES, so it fits.
        self.reader.seek_relative(bytes as i64).map_err(|error| unusable(self.file, error, AGAIN))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut buffer = [0; N];
        self.fill(&mut buffer)?;
        Ok(buffer)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self, most: u64) -> Result<String> {
        let length = self.u64()?;
        if length > most {
            return Err(self.broken(format!("it has a name of {length} bytes")));
        }
        let mut buffer = vec![0; length as usize];
        self.fill(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    fn skip_text(&mut self) -> Result<()> {
        let length = self.u64()?;
        self.skip(length)
    }

    /// A scalar; `None` for what is skipped.
    fn value(&mut self) -> Result<Option<Value>> {
        let signed = |value: i64| u64::try_from(value).map_or(Value::Float(value as f64), Value::Number);
        Ok(Some(match self.u32()? {
            0 => Value::Number(u64::from(u8::from_le_bytes(self.bytes()?))),
            1 => signed(i64::from(i8::from_le_bytes(self.bytes()?))),
            2 => Value::Number(u64::from(u16::from_le_bytes(self.bytes()?))),
            3 => signed(i64::from(i16::from_le_bytes(self.bytes()?))),
            4 => Value::Number(u64::from(self.u32()?)),
            5 => signed(i64::from(i32::from_le_bytes(self.bytes()?))),
            6 => Value::Float(f64::from(f32::from_le_bytes(self.bytes()?))),
            7 => Value::Bool(self.bytes::<1>()? != [0]),
            8 => {
                let length = self.u64()?;
                if length > MOST_TEXT {
                    self.skip(length)?;
                    return Ok(None);
                }
                let mut buffer = vec![0; length as usize];
                self.fill(&mut buffer)?;
                Value::Text(String::from_utf8_lossy(&buffer).into_owned())
            }
            9 => {
                self.skip_array()?;
                return Ok(None);
            }
            10 => Value::Number(self.u64()?),
            11 => signed(i64::from_le_bytes(self.bytes()?)),
            12 => Value::Float(f64::from_le_bytes(self.bytes()?)),
            other => return Err(self.broken(format!("it has a value of type {other}, which GGUF does not know"))),
        }))
    }

    /// Passes over an array: its element type, its length, its elements.
    fn skip_array(&mut self) -> Result<()> {
        let mut open = vec![(self.u32()?, self.u64()?)];
        while let Some((element, count)) = open.pop() {
            let bytes = match element {
                0 | 1 | 7 => 1,
                2 | 3 => 2,
                4..=6 => 4,
                10..=12 => 8,
                8 => {
                    self.can_hold(count, 8, "texts")?;
                    for _ in 0..count {
                        self.skip_text()?;
                    }
                    continue;
                }
                9 if count == 0 => continue,
                9 if open.len() < MOST_NESTED => {
                    self.can_hold(count, 12, "arrays")?;
                    open.push((element, count - 1));
                    open.push((self.u32()?, self.u64()?));
                    continue;
                }
                9 => return Err(self.broken("it has arrays within arrays, deeper than anybody needs")),
                other => return Err(self.broken(format!("it has an array of type {other}, which GGUF does not know"))),
            };
            self.can_hold(count, bytes, "values in an array")?;
            self.skip(count * bytes)?;
        }
        Ok(())
    }

    /// A tensor, not yet sized, and its offset.
    fn tensor(&mut self, alignment: u64) -> Result<(TensorInfo, u64)> {
        let name = self.text(MOST_NAME)?;
        let dimensions = self.u32()?;
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(self.broken(format!("'{name}' has {dimensions} dimensions, not 1 to {MOST_DIMENSIONS}")));
        }
        let mut shape = Vec::new();
        let mut weights = 1u64;
        for _ in 0..dimensions {
            let extent = self.u64()?;
            weights = weights.saturating_mul(extent);
            shape.push(extent);
        }
        if !(1..=MOST_WEIGHTS).contains(&weights) {
            return Err(self.broken(format!("'{name}' has the shape {shape:?}, which no tensor has")));
        }
        let storage = Storage::of(self.u32()?);
        let offset = self.u64()?;
        if !offset.is_multiple_of(alignment) || offset > u64::MAX / 2 {
            return Err(self.broken(format!("'{name}' starts at {offset}, which is no multiple of {alignment}")));
        }
        Ok((TensorInfo { name, shape, storage, row_bytes: 0 }, offset))
    }
}
