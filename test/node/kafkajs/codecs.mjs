// The codecs that kafkajs leaves to its user: it has gzip built in.
import kafkajs from 'kafkajs'
import lz4 from 'lz4js'
import snappy from 'snappyjs'
import { ZstdCodec } from 'zstd-codec'

const { CompressionCodecs, CompressionTypes } = kafkajs

export async function registerCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = () => ({
    compress: async (encoder) => xerial(encoder.buffer),
    decompress: async (buffer) => (isXerial(buffer) ? fromXerial(buffer) : Buffer.from(snappy.uncompress(buffer))),
  })
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
  })
  const zstd = await new Promise((resolve) => ZstdCodec.run((module) => resolve(new module.Streaming())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  })
}

// Java's clients frame Snappy in the way of xerial's library: a magic of 8
// bytes, two versions of 4, then chunks, each after its length.
const magic = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00])
const versions = Buffer.from([0, 0, 0, 1, 0, 0, 0, 1])
const chunkBytes = 32 << 10

function isXerial(buffer) {
  return buffer.subarray(0, magic.length).equals(magic)
}

function xerial(buffer) {
  const parts = [magic, versions]
  for (let at = 0; at < buffer.length; at += chunkBytes) {
    const chunk = Buffer.from(snappy.compress(buffer.subarray(at, at + chunkBytes)))
    const length = Buffer.alloc(4)
    length.writeUInt32BE(chunk.length)
    parts.push(length, chunk)
  }
  return Buffer.concat(parts)
}

function fromXerial(buffer) {
  const parts = []
  for (let at = magic.length + versions.length; at < buffer.length; ) {
    const length = buffer.readUInt32BE(at)
    at += 4
    parts.push(Buffer.from(snappy.uncompress(buffer.subarray(at, at + length))))
    at += length
  }
  return Buffer.concat(parts)
}
