// Weights of 16 and 32 bits. A matrix of another form (blocks of few bits) is another object with the same methods.

/**
 * A weight matrix, F rows of C numbers: what a linear layer, the embedding and the LM head ask of one.
 * `times`: x is (n, C), out (n, F), each token by itself. `row`: copy row i into `out`, from `at` on.
 */
export type Matrix = {
  shape: [number, number];
  times: (x: Float32Array, n: number, out: Float32Array) => void;
  row: (i: number, out: Float32Array, at?: number) => void;
};

/** The sum of n products: of a from i on and b from j on. Four sums take turns, as each has to wait for its last. */
export function dot(a: Float32Array, i: number, b: Float32Array, j: number, n: number) {
  let [p, q, r, s] = [0, 0, 0, 0];
  const end = i + n;
  for (; i + 3 < end; i += 4, j += 4) {
    p += a[i] * b[j];
    q += a[i + 1] * b[j + 1];
    r += a[i + 2] * b[j + 2];
    s += a[i + 3] * b[j + 3];
  }
  for (; i < end; i++, j++) p += a[i] * b[j];
  return p + q + r + s;
}

/** A matrix of 32-bit numbers. */
export class FloatMatrix implements Matrix {
  declare data: Float32Array;
  declare shape: [number, number];

  constructor(data: Float32Array, shape: [number, number]) {
    this.data = data;
    this.shape = shape;
  }

  times(x: Float32Array, n: number, out: Float32Array) {
    const [F, C] = this.shape;
    for (let f = 0; f < F; f++)
      for (let i = 0; i < n; i++) out[i * F + f] = dot(this.data, f * C, x, i * C, C);
  }

  row(i: number, out: Float32Array, at = 0) {
    const C = this.shape[1];
    out.set(this.data.subarray(i * C, (i + 1) * C), at);
  }
}

/** The number of 16 bits (a sign, 5 of exponent, 10 of fraction) that stands for these bits. */
export function half(bits: number) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 25) * (1024 + fraction) : sign * 2 ** -24 * fraction;
}

/** All numbers of 16 bits. */
export const HALVES = Float32Array.from({ length: 2 ** 16 }, (_, bits) => half(bits));
