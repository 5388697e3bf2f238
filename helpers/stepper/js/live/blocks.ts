// Matrices that stay as a GGUF file stores them: blocks of 32 or 256 numbers, of few bits each, that share a scale. They
// are widened inside the product, and never written down; layouts as in the Python package `gguf` (quants.py).
import { HALVES, type Matrix } from "./matrix.ts";

/** The sum of n products: of the numbers in blocks, from byte `at` on, and x, from j on. */
type Dot = (bytes: DataView, at: number, n: number, x: Float32Array, j: number) => number;
/** How many numbers a block holds, in how many bytes. */
export type Kind = { name: string; numbers: number; nbytes: number; dot: Dot };

/** The high half of a number of 32 bits. */
const BFLOATS = new Float32Array(Uint32Array.from({ length: 2 ** 16 }, (_, bits) => bits << 16).buffer);

/** The number of 16 bits at a place, lowest byte first. */
const halfAt = (bytes: DataView, at: number) => HALVES[bytes.getUint16(at, true)];

function dotF32(bytes: DataView, at: number, n: number, x: Float32Array, j: number) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += bytes.getFloat32(at + 4 * i, true) * x[j + i];
  return sum;
}

/** Of numbers of 16 bits, which are looked up by these. */
const dot16 =
  (numbers: Float32Array): Dot =>
  (bytes, at, n, x, j) => {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += numbers[bytes.getUint16(at + 2 * i, true)] * x[j + i];
    return sum;
  };

/** A scale, then 16 bytes: their low four bits are the first 16 numbers, the high ones the next, from -8 on. */
function dotQ4_0(bytes: DataView, at: number, n: number, x: Float32Array, j: number) {
  let sum = 0;
  for (const end = j + n; j < end; j += 32, at += 18) {
    let [low, high] = [0, 0];
    for (let i = 0; i < 16; i++) {
      const byte = bytes.getUint8(at + 2 + i);
      low += ((byte & 15) - 8) * x[j + i];
      high += ((byte >> 4) - 8) * x[j + i + 16];
    }
    sum += halfAt(bytes, at) * (low + high);
  }
  return sum;
}

/** A scale, what 0 stands for, then 16 bytes as in Q4_0, from 0 on. */
function dotQ4_1(bytes: DataView, at: number, n: number, x: Float32Array, j: number) {
  let sum = 0;
  for (const end = j + n; j < end; j += 32, at += 20) {
    let [low, high, ones] = [0, 0, 0];
    for (let i = 0; i < 16; i++) {
      const byte = bytes.getUint8(at + 4 + i);
      low += (byte & 15) * x[j + i];
      high += (byte >> 4) * x[j + i + 16];
      ones += x[j + i] + x[j + i + 16];
    }
    sum += halfAt(bytes, at) * (low + high) + halfAt(bytes, at + 2) * ones;
  }
  return sum;
}

/** A scale, in Q5_1 what 0 stands for, 32 fifth bits, then 16 bytes as in Q4_0; in Q5_0 numbers are from -16 on. */
const dotQ5 =
  (hasLeast: boolean): Dot =>
  (bytes, at, n, x, j) => {
    const head = hasLeast ? 4 : 2;
    let sum = 0;
    for (const end = j + n; j < end; j += 32, at += head + 20) {
      const fifth = bytes.getUint32(at + head, true);
      let [part, ones] = [0, 0];
      for (let i = 0; i < 16; i++) {
        const byte = bytes.getUint8(at + head + 4 + i);
        part += ((byte & 15) | (((fifth >> i) & 1) << 4)) * x[j + i];
        part += ((byte >> 4) | (((fifth >> (i + 16)) & 1) << 4)) * x[j + i + 16];
        ones += x[j + i] + x[j + i + 16];
      }
      const scale = halfAt(bytes, at);
      sum += scale * part + (hasLeast ? halfAt(bytes, at + 2) : -16 * scale) * ones;
    }
    return sum;
  };

/** A scale, then 32 signed bytes. */
function dotQ8_0(bytes: DataView, at: number, n: number, x: Float32Array, j: number) {
  let sum = 0;
  for (const end = j + n; j < end; j += 32, at += 34) {
    let [even, odd] = [0, 0];
    for (let i = 0; i < 32; i += 2) {
      even += bytes.getInt8(at + 2 + i) * x[j + i];
      odd += bytes.getInt8(at + 3 + i) * x[j + i + 1];
    }
    sum += halfAt(bytes, at) * (even + odd);
  }
  return sum;
}

/** Two scales, of scales and of what is taken away; 8 of both, in 12 bytes; in Q5_K 32 bytes with a fifth bit of each
 * group; 4 times 32 bytes, of which the low four bits are a group of 32 numbers and the high ones the next. */
const dotK =
  (hasFifth: boolean): Dot =>
  (bytes, at, n, x, j) => {
    const [head, nbytes] = hasFifth ? [48, 176] : [16, 144];
    let sum = 0;
    for (const end = j + n; j < end; at += nbytes)
      for (let group = 0; group < 8; group++, j += 32) {
        const from = at + head + 32 * (group >> 1);
        const shift = 4 * (group & 1);
        let [part, ones] = [0, 0];
        for (let i = 0; i < 32; i++) {
          part += ((bytes.getUint8(from + i) >> shift) & 15) * x[j + i];
          ones += x[j + i];
        }
        if (hasFifth)
          for (let i = 0; i < 32; i++) part += ((bytes.getUint8(at + 16 + i) >> group) & 1) * 16 * x[j + i];
        sum += halfAt(bytes, at) * sixBits(bytes, at + 4, group, 0) * part;
        sum -= halfAt(bytes, at + 2) * sixBits(bytes, at + 4, group, 1) * ones;
      }
    return sum;
  };

/** One of 8 scales (0), or of 8 for what is taken away (1), of six bits. The first four of both lie in bytes 0 to 7; of
 * the others the low four bits in bytes 8 to 11, scales in the low half, and the high two above the first four. */
function sixBits(bytes: DataView, at: number, group: number, which: 0 | 1) {
  if (group < 4) return bytes.getUint8(at + group + 4 * which) & 63;
  const high = bytes.getUint8(at + group - 4 + 4 * which) >> 6;
  return ((bytes.getUint8(at + group + 4) >> (4 * which)) & 15) | (high << 4);
}

/** 128 bytes with the low four bits, 64 with the high two, 16 signed scales, the scale of those; numbers from -32 on.
 * Bytes are shared by groups of 32 numbers, each half of which has its scale. */
function dotQ6_K(bytes: DataView, at: number, n: number, x: Float32Array, j: number) {
  let sum = 0;
  for (const end = j + n; j < end; at += 210)
    for (let part = 0; part < 16; part++, j += 16) {
      const [group, half] = [part >> 1, 16 * (part & 1)];
      const low = at + 64 * (group >> 2) + 32 * (group & 1) + half;
      const high = at + 128 + 32 * (group >> 2) + half;
      const [lowShift, highShift] = [2 * (group & 2), 2 * (group & 3)];
      let products = 0;
      for (let i = 0; i < 16; i++) {
        const bits = (bytes.getUint8(low + i) >> lowShift) & 15;
        const more = (bytes.getUint8(high + i) >> highShift) & 3;
        products += ((bits | (more << 4)) - 32) * x[j + i];
      }
      sum += halfAt(bytes, at + 208) * bytes.getInt8(at + 192 + part) * products;
    }
  return sum;
}

/** By the number that GGUF files have for them. */
export const KINDS: Record<number, Kind> = {
  0: { name: "F32", numbers: 1, nbytes: 4, dot: dotF32 },
  1: { name: "F16", numbers: 1, nbytes: 2, dot: dot16(HALVES) },
  2: { name: "Q4_0", numbers: 32, nbytes: 18, dot: dotQ4_0 },
  3: { name: "Q4_1", numbers: 32, nbytes: 20, dot: dotQ4_1 },
  6: { name: "Q5_0", numbers: 32, nbytes: 22, dot: dotQ5(false) },
  7: { name: "Q5_1", numbers: 32, nbytes: 24, dot: dotQ5(true) },
  8: { name: "Q8_0", numbers: 32, nbytes: 34, dot: dotQ8_0 },
  12: { name: "Q4_K", numbers: 256, nbytes: 144, dot: dotK(false) },
  13: { name: "Q5_K", numbers: 256, nbytes: 176, dot: dotK(true) },
  14: { name: "Q6_K", numbers: 256, nbytes: 210, dot: dotQ6_K },
  30: { name: "BF16", numbers: 1, nbytes: 2, dot: dot16(BFLOATS) },
};
/** Names of those that are not read. */
export const OTHERS: Record<number, string> = {
  9: "Q8_1",
  10: "Q2_K",
  11: "Q3_K",
  20: "IQ4_NL",
  23: "IQ4_XS",
  39: "MXFP4",
};

/** A matrix of rows of blocks. */
export class BlockMatrix implements Matrix {
  declare kind: Kind;
  declare bytes: DataView;
  declare shape: [number, number];
  declare rowBytes: number;

  /** `bytes`: row after row. */
  constructor(kind: Kind, bytes: DataView, shape: [number, number]) {
    this.kind = kind;
    this.bytes = bytes;
    this.shape = shape;
    this.rowBytes = (shape[1] / kind.numbers) * kind.nbytes;
  }

  times(x: Float32Array, n: number, out: Float32Array) {
    const [F, C] = this.shape;
    const { dot } = this.kind;
    for (let f = 0; f < F; f++)
      for (let i = 0; i < n; i++) out[i * F + f] = dot(this.bytes, f * this.rowBytes, C, x, i * C);
  }

  /** A number is the product of its block and of a 1 among zeros: exact, and the blocks are read in one place. */
  row(i: number, out: Float32Array, at = 0) {
    const { dot, numbers, nbytes } = this.kind;
    const one = new Float32Array(numbers);
    for (let c = 0; c < this.shape[1]; c++) {
      one[c % numbers] = 1;
      out[at + c] = dot(this.bytes, i * this.rowBytes + Math.floor(c / numbers) * nbytes, numbers, one, 0);
      one[c % numbers] = 0;
    }
  }
}
