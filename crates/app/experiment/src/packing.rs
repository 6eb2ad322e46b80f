//! Packed files, told by their first bytes and unpacked while they are read.

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, BufRead, Read};
use trainyard_diagnostic::InputError;

/// How a file is packed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// xz.
    Xz,
}

/// Memory that unpacking one xz block may take.
const XZ_MEMORY_KIB: u32 = 256 << 10;

impl Packing {
    /// By the first bytes.
    pub fn of(begin: &[u8]) -> Packing {
        match begin {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            _ => Packing::Plain,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Packing::Plain => "plain",
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
            Packing::Xz => "xz",
        }
    }
}

/// The content of a packed file.
pub fn unpacked(packing: Packing, file: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
    let inner: Box<dyn Read> = match packing {
        Packing::Plain => return Ok(Box::new(file)),
        Packing::Gzip => Box::new(MultiGzDecoder::new(file)),
        Packing::Zstd => Box::new(Frames::new(file)),
        Packing::Xz => Box::new(XzReader::new_mem_limit(file, true, XZ_MEMORY_KIB)),
    };
    Ok(Box::new(Unpacking { inner, packing, done: 0 }))
}

/// All frames of a Zstandard file, one after the other.
struct Frames<R: BufRead> {
    frame: Option<Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>>,
    rest: Option<R>,
}

impl<R: BufRead> Frames<R> {
    fn new(file: R) -> Frames<R> {
        Frames { frame: None, rest: Some(file) }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(mut frame) = self.frame.take() {
                let count = frame.read(out)?;
                if count > 0 || out.is_empty() {
                    self.frame = Some(frame);
                    return Ok(count);
                }
                let (rest, decoder) = frame.into_parts();
                let stated = decoder.get_checksum_from_data();
                if stated.is_some() && stated != decoder.get_calculated_checksum() {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                self.rest = Some(rest);
            }
            let Some(mut rest) = self.rest.take() else { return Ok(0) };
            if rest.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = StreamingDecoder::new(rest).map_err(io::Error::other)?;
            self.frame = Some(Box::new(frame));
        }
    }
}

/// Says of a fault in an archive that it is one, and how far the content is good.
struct Unpacking {
    inner: Box<dyn Read>,
    packing: Packing,
    done: u64,
}

impl Read for Unpacking {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(out) {
            Ok(count) => {
                self.done += count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let name = self.packing.name();
                let what = match error.kind() {
                    io::ErrorKind::UnexpectedEof => format!("a {name} archive that is cut off"),
                    _ => format!("a damaged {name} archive"),
                };
                let expected = format!(
                    "a whole one; its content is good up to byte {}, fetch it again",
                    self.done
                );
                Err(io::Error::other(InputError::wrong(0, "", &what, expected)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    fn content(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let file = io::Cursor::new(packed.to_vec());
        unpacked(Packing::of(packed), file)?.read_to_end(&mut content)?;
        Ok(content)
    }

    /// A Zstandard file whose content does not have its checksum.
    const ZSTD: [u8; 18] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x29, 0x00, 0x00, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0, 0,
        0, 0,
    ];

    #[test]
    fn packed_content_is_read_whatever_the_name() {
        assert_eq!(content(b"plain").unwrap(), b"plain");
        let mut twice = gzip(b"hello ");
        twice.extend(gzip(b"world"));
        assert_eq!(content(&twice).unwrap(), b"hello world");
    }

    #[test]
    fn a_cut_or_damaged_archive_is_named_as_one() {
        let packed = gzip(&vec![7; 100_000]);
        let cut = content(&packed[..packed.len() - 9]).unwrap_err().to_string();
        assert!(cut.contains("gzip archive that is cut off"), "{cut}");
        let damaged = content(&ZSTD).unwrap_err().to_string();
        assert!(
            damaged.contains("damaged zstd archive") || damaged.contains("cut off"),
            "{damaged}"
        );
        let damaged = content(&[0xfd, b'7', b'z', b'X', b'Z', 0, 1, 2, 3]).unwrap_err().to_string();
        assert!(damaged.contains("xz archive"), "{damaged}");
    }
}
