// Reader and writer of the safetensors layout: 8 bytes with the length of a JSON header, the header,
// the data. Arrays are {data, shape}; other facts are JSON strings in the header's metadata.

const TYPES = { U8: Uint8Array, U32: Uint32Array, F32: Float32Array, F64: Float64Array };
const NAMES = new Map(Object.entries(TYPES).map(([name, type]) => [type, name]));
const LENGTH_BYTES = 8; // the header is padded to a multiple of this, so that the data are aligned

export function save(arrays) {
  // Larger elements first, so that every array is aligned.
  const sorted = Object.entries(arrays).sort(
    ([, a], [, b]) => b.data.BYTES_PER_ELEMENT - a.data.BYTES_PER_ELEMENT,
  );
  let size = 0;
  const header = Object.fromEntries(sorted.map(([name, { data, shape }]) => {
    const start = size;
    size += data.byteLength;
    return [name, { dtype: NAMES.get(data.constructor), shape, data_offsets: [start, size] }];
  }));
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = Math.ceil(text.length / LENGTH_BYTES) * LENGTH_BYTES;
  const bytes = new Uint8Array(LENGTH_BYTES + length + size);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true);
  bytes.fill(0x20, LENGTH_BYTES, LENGTH_BYTES + length);
  bytes.set(text, LENGTH_BYTES);
  for (const [name, { data }] of sorted) {
    const start = LENGTH_BYTES + length + header[name].data_offsets[0];
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), start);
  }
  return bytes;
}

/** The facts and arrays of a message; arrays are views of the buffer, not copies. */
export function load(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const text = new TextDecoder().decode(new Uint8Array(buffer, LENGTH_BYTES, length));
  const { __metadata__: metadata = {}, ...header } = JSON.parse(text);
  const parse = ([name, value]) => [name, JSON.parse(value)];
  const view = ([name, { dtype, shape, data_offsets: [start, end] }]) => {
    const type = TYPES[dtype];
    const data = new type(buffer, LENGTH_BYTES + length + start, (end - start) / type.BYTES_PER_ELEMENT);
    return [name, { data, shape }];
  };
  return {
    facts: Object.fromEntries(Object.entries(metadata).map(parse)),
    arrays: Object.fromEntries(Object.entries(header).map(view)),
  };
}
