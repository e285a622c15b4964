//! Avro: the codec, schemas inferred from data, the processors `avro.encode` and `avro.decode`, and what native
//! plugins need to see decoded data.

pub mod codec;
pub mod infer;
