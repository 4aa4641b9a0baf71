//! Writes small model files for tests; `tests/inspect.rs` includes it too.

use std::io::{Read, Result, Seek, SeekFrom};

/// A model file in the making.
#[derive(Clone)]
pub struct Sample {
    version: u32,
    keys: Vec<(String, Vec<u8>)>,
    tensors: Vec<Vec<u8>>,
    data: u64,
}

impl Sample {
    /// An empty file of this architecture.
    pub fn new(architecture: &str) -> Sample {
        let sample = Sample { version: 3, keys: Vec::new(), tensors: Vec::new(), data: 0 };
        sample.text("general.architecture", architecture)
    }

    /// A part of a model that has no architecture of its own.
    pub fn bare() -> Sample {
        Sample { version: 3, keys: Vec::new(), tensors: Vec::new(), data: 0 }
    }

    /// Of another version.
    pub fn version(mut self, version: u32) -> Sample {
        self.version = version;
        self
    }

    /// A value of any type.
    pub fn key(mut self, key: &str, kind: u32, value: &[u8]) -> Sample {
        let bytes = [&kind.to_le_bytes()[..], value].concat();
        self.keys.push((key.into(), bytes));
        self
    }

    /// A 32-bit number.
    pub fn number(self, key: &str, value: u32) -> Sample {
        self.key(key, 4, &value.to_le_bytes())
    }

    /// A 32-bit float.
    pub fn float(self, key: &str, value: f32) -> Sample {
        self.key(key, 6, &value.to_le_bytes())
    }

    /// A text.
    pub fn text(self, key: &str, value: &str) -> Sample {
        self.key(key, 8, &text(value))
    }

    /// An array of texts.
    pub fn texts(self, key: &str, values: &[&str]) -> Sample {
        let mut bytes = [&8u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        values.iter().for_each(|value| bytes.extend(text(value)));
        self.key(key, 9, &bytes)
    }

    /// A tensor of so many bytes, after the ones before it.
    pub fn tensor(mut self, name: &str, shape: &[u64], storage: u32, bytes: u64) -> Sample {
        let mut info = text(name);
        info.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|extent| info.extend(extent.to_le_bytes()));
        info.extend(storage.to_le_bytes());
        info.extend(self.data.to_le_bytes());
        self.tensors.push(info);
        self.data += bytes.next_multiple_of(32);
        self
    }

    /// A tensor of 32-bit floats.
    pub fn floats(self, name: &str, shape: &[u64]) -> Sample {
        self.tensor(name, shape, 0, 4 * shape.iter().product::<u64>())
    }

    /// Everything before the data.
    pub fn header(&self) -> Vec<u8> {
        let mut bytes = [&b"GGUF"[..], &self.version.to_le_bytes()].concat();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes
    }

    /// The file, with zeros for weights.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header();
        bytes.resize(bytes.len() + self.data as usize, 0);
        bytes
    }

    /// The file without room for its weights, however many there are.
    pub fn sparse(&self) -> Sparse {
        let header = self.header();
        Sparse { length: header.len() as u64 + self.data, header, position: 0 }
    }
}

/// A text as GGUF has it.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A file that is zero after its header.
#[derive(Clone)]
pub struct Sparse {
    /// What is not zero.
    pub header: Vec<u8>,
    /// Bytes of the file.
    pub length: u64,
    position: u64,
}

impl Read for Sparse {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = (buffer.len() as u64).min(self.length.saturating_sub(self.position)) as usize;
        for byte in &mut buffer[..count] {
            *byte = self.header.get(self.position as usize).copied().unwrap_or(0);
            self.position += 1;
        }
        Ok(count)
    }
}

impl Seek for Sparse {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.position = match to {
            SeekFrom::Start(position) => position,
            SeekFrom::End(offset) => self.length.saturating_add_signed(offset),
            SeekFrom::Current(offset) => self.position.saturating_add_signed(offset),
        };
        Ok(self.position)
    }
}
