//! Decompression with a limit: a few bytes can decompress to gigabytes.

use std::io::{Cursor, Read};

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use lz4_flex::frame::FrameDecoder;
use vrl::compiler::prelude::*;

use super::limits::MostBytes;

/// First bytes of a frame of LZ4.
const LZ4_FRAME: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];

/// Size of a block of LZ4 if the program does not say it, as in the library.
const LZ4_BLOCK: i64 = 1_000_000;

/// A compression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compression {
    Gzip,
    Zlib,
    Zstd,
    Snappy,
    Lz4,
}

impl Compression {
    /// Returns the compression that a function of the library undoes.
    pub(super) fn of_function(name: &str) -> Option<Compression> {
        Some(match name {
            "decode_gzip" => Compression::Gzip,
            "decode_zlib" => Compression::Zlib,
            "decode_zstd" => Compression::Zstd,
            "decode_snappy" => Compression::Snappy,
            "decode_lz4" => Compression::Lz4,
            _ => return None,
        })
    }

    /// Returns the name, as messages of the library print it.
    fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "Gzip",
            Compression::Zlib => "Zlib",
            Compression::Zstd => "Zstd",
            Compression::Snappy => "Snappy",
            Compression::Lz4 => "lz4",
        }
    }

    /// Compiles a call of the function.
    pub(super) fn compile(self, context: &FunctionCompileContext, arguments: &ArgumentList) -> Compiled {
        let of_lz4 = |name| matches!(self, Compression::Lz4).then(|| arguments.optional(name)).flatten();
        Ok(Decompression {
            compression: self,
            value: arguments.required("value"),
            block: of_lz4("buf_size"),
            prepended: of_lz4("prepended_size"),
            most: MostBytes::of(context),
        }
        .as_expr())
    }
}

#[derive(Clone, Debug)]
struct Decompression {
    compression: Compression,
    value: Box<dyn Expression>,
    /// Size of a block of LZ4.
    block: Option<Box<dyn Expression>>,
    /// Whether a block of LZ4 begins with its size.
    prepended: Option<Box<dyn Expression>>,
    most: MostBytes,
}

impl FunctionExpression for Decompression {
    fn resolve(&self, context: &mut Context) -> Resolved {
        let bytes = self.value.resolve(context)?.try_bytes()?;
        let block = match &self.block {
            Some(block) => block.resolve(context)?.try_integer()?,
            None => LZ4_BLOCK,
        };
        let prepended = match &self.prepended {
            Some(prepended) => prepended.resolve(context)?.try_boolean()?,
            None => false,
        };
        let decompressed = match self.compression {
            Compression::Gzip => self.read(MultiGzDecoder::new(Cursor::new(&bytes))),
            Compression::Zlib => self.read(ZlibDecoder::new(Cursor::new(&bytes))),
            Compression::Zstd => match zstd::stream::read::Decoder::with_buffer(Cursor::new(&bytes)) {
                Ok(decoder) => self.read(decoder),
                Err(_) => Err(self.invalid()),
            },
            Compression::Snappy => self.snappy(&bytes),
            Compression::Lz4 if bytes.starts_with(&LZ4_FRAME) => self.read(FrameDecoder::new(Cursor::new(&bytes))),
            Compression::Lz4 => self.lz4_block(&bytes, block, prepended),
        };
        Ok(Value::Bytes(decompressed?.into()))
    }

    fn type_def(&self, _: &TypeState) -> TypeDef {
        TypeDef::bytes().fallible()
    }
}

impl Decompression {
    fn read(&self, decoder: impl Read) -> Result<Vec<u8>, ExpressionError> {
        let mut bytes = Vec::new();
        let read = decoder.take(self.most.0 as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|_| self.invalid())?;
        self.check(bytes.len())?;
        Ok(bytes)
    }

    fn snappy(&self, bytes: &[u8]) -> Result<Vec<u8>, ExpressionError> {
        self.check(snap::raw::decompress_len(bytes).map_err(|_| self.invalid())?)?;
        snap::raw::Decoder::new().decompress_vec(bytes).map_err(|_| self.invalid())
    }

    fn lz4_block(&self, bytes: &[u8], block: i64, prepended: bool) -> Result<Vec<u8>, ExpressionError> {
        let (size, bytes) = match prepended {
            true => lz4_flex::block::uncompressed_size(bytes).map_err(|error| Self::invalid_block(&error))?,
            false => (usize::try_from(block).map_err(|_| self.invalid())?, bytes),
        };
        self.check(size)?;
        lz4_flex::block::decompress(bytes, size).map_err(|error| Self::invalid_block(&error))
    }

    fn check(&self, size: usize) -> Result<(), ExpressionError> {
        match size > self.most.0 {
            true => Err(format!("the decompressed value has more than {} bytes", self.most.0).into()),
            false => Ok(()),
        }
    }

    fn invalid(&self) -> ExpressionError {
        format!("unable to decode value with {} decoder", self.compression.name()).into()
    }

    fn invalid_block(error: &lz4_flex::block::DecompressError) -> ExpressionError {
        format!("unable to decode value with lz4 block decoder: {error}").into()
    }
}
