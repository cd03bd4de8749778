/**
 * A small writer of WebAssembly: an expression is the bytes that compute it, nested as the expression is and flattened at
 * the end. Only what our kernels use. Opcodes: https://webassembly.github.io/spec/core/appendix/index-instructions.html
 */
export type Code = readonly (number | Code)[];

export type ValueType = 'i32' | 'f32' | 'v128';

const VALUE_TYPES: { readonly [type in ValueType]: number } = { i32: 0x7f, f32: 0x7d, v128: 0x7b };
const EMPTY_BLOCK = 0x40;
/** Unit in which WebAssembly memories are measured. */
export const PAGE_BYTES = 65536;
const SIMD = 0xfd;
/** log2 of the alignment a memory access promises. */
const ALIGN_4_BYTES = 2;
const ALIGN_16_BYTES = 4;

/** A local variable or parameter of the function being written. */
export interface Local {
  readonly get: Code;
  set(value: Code): Code;
}

/** Hands out the locals of one function; parameters come first. */
export class FunctionLocals {
  readonly parameters: readonly Local[];
  readonly #types: ValueType[] = [];
  readonly #parameterTypes: readonly ValueType[];

  constructor(parameterTypes: readonly ValueType[]) {
    this.#parameterTypes = parameterTypes;
    this.parameters = parameterTypes.map((_, index) => local(index));
  }

  local(type: ValueType): Local {
    this.#types.push(type);
    return local(this.#parameterTypes.length + this.#types.length - 1);
  }

  locals(type: ValueType, count: number): Local[] {
    return Array.from({ length: count }, () => this.local(type));
  }

  get parameterTypes(): readonly ValueType[] {
    return this.#parameterTypes;
  }

  get types(): readonly ValueType[] {
    return this.#types;
  }
}

const binary =
  (...opcode: number[]) =>
  (a: Code, b: Code): Code => [a, b, opcode];
const unary =
  (...opcode: number[]) =>
  (a: Code): Code => [a, opcode];
const load =
  (alignment: number, ...opcode: number[]) =>
  (address: Code, offset = 0): Code => [address, opcode, alignment, unsigned(offset)];
const store =
  (alignment: number, ...opcode: number[]) =>
  (address: Code, value: Code, offset = 0): Code => [address, value, opcode, alignment, unsigned(offset)];

export const i32 = {
  const: (value: number): Code => [0x41, signed(value)],
  add: binary(0x6a),
  sub: binary(0x6b),
  mul: binary(0x6c),
  and: binary(0x71),
  shl: binary(0x74),
  shrU: binary(0x76),
  geU: binary(0x4f),
  load: load(ALIGN_4_BYTES, 0x28),
} as const;

export const f32 = {
  const: (value: number): Code => [0x43, ...new Uint8Array(Float32Array.of(value).buffer)],
  sqrt: unary(0x91),
  add: binary(0x92),
  mul: binary(0x94),
  div: binary(0x95),
  max: binary(0x97),
} as const;

/** Four float32 lanes. `multiplyAdd(a, b, c)` is a·b + c, rounded once where the machine can. */
export const f32x4 = {
  load: load(ALIGN_16_BYTES, SIMD, 0x00),
  loadSplat: load(ALIGN_4_BYTES, SIMD, 0x09),
  store: store(ALIGN_16_BYTES, SIMD, 0x0b),
  splat: unary(SIMD, 0x13),
  constant: (value: number): Code => [f32.const(value), SIMD, 0x13],
  lane: (vector: Code, index: number): Code => [vector, SIMD, 0x1f, index],
  storeLane: (address: Code, vector: Code, index: number, offset = 0): Code => [
    address,
    vector,
    [SIMD, 0x5a, ALIGN_4_BYTES],
    unsigned(offset),
    index,
  ],
  add: binary(SIMD, ...unsigned(0xe4)),
  sub: binary(SIMD, ...unsigned(0xe5)),
  mul: binary(SIMD, ...unsigned(0xe6)),
  div: binary(SIMD, ...unsigned(0xe7)),
  abs: unary(SIMD, ...unsigned(0xe0)),
  neg: unary(SIMD, ...unsigned(0xe1)),
  sqrt: unary(SIMD, ...unsigned(0xe3)),
  min: binary(SIMD, ...unsigned(0xe8)),
  max: binary(SIMD, ...unsigned(0xe9)),
  multiplyAdd: (a: Code, b: Code, c: Code): Code => [a, b, c, SIMD, unsigned(0x105)],
  less: binary(SIMD, 0x43),
  /** Lanes of `a` where the mask is set, of `b` elsewhere. */
  select: (a: Code, b: Code, mask: Code): Code => [a, b, mask, SIMD, 0x52],
} as const;

export const i32x4 = {
  add: binary(SIMD, ...unsigned(0xae)),
  shl: binary(SIMD, ...unsigned(0xab)),
} as const;

/** for (index = from; index < to; index += step) body, all unsigned. */
export function forLoop(index: Local, from: Code, to: Code, step: Code, ...body: readonly Code[]): Code {
  const [block, loop, branch, branchIf, end] = [0x02, 0x03, 0x0c, 0x0d, 0x0b];
  return [
    index.set(from),
    [block, EMPTY_BLOCK, loop, EMPTY_BLOCK],
    [i32.geU(index.get, to), branchIf, 1],
    body,
    index.set(i32.add(index.get, step)),
    [branch, 0, end, end],
  ];
}

/** Runs the code when the condition is not 0. */
export function when(condition: Code, ...body: readonly Code[]): Code {
  const [branch, end] = [0x04, 0x0b];
  return [condition, [branch, EMPTY_BLOCK], body, end];
}

/**
 * Compiles a function without result against a memory that does not grow. Its parameters are numbers, integers wrapped to
 * 32 bits.
 */
export function compileKernel(
  locals: FunctionLocals,
  body: readonly Code[],
  memory: WebAssembly.Memory,
): (...parameters: number[]) => void {
  const parameters = locals.parameterTypes.map(type => VALUE_TYPES[type]);
  const declared = locals.types.map(type => [1, VALUE_TYPES[type]]);
  const code = flatten([vector(declared), body, 0x0b]);
  const pages = memory.buffer.byteLength / PAGE_BYTES;
  const limits = [0x01, unsigned(pages), unsigned(pages)];
  const bytes = flatten([
    [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
    section(1, vector([[0x60, vector(parameters.map(type => [type])), 0]])),
    section(2, vector([[text('env'), text('memory'), 0x02, limits]])),
    section(3, vector([[0]])),
    section(7, vector([[text('run'), 0x00, 0]])),
    section(10, vector([[unsigned(code.length), code]])),
  ]);
  const module = new WebAssembly.Module(Uint8Array.from(bytes));
  return new WebAssembly.Instance(module, { env: { memory } }).exports.run as (...p: number[]) => void;
}

function local(index: number): Local {
  return {
    get: [0x20, unsigned(index)],
    set: value => [value, 0x21, unsigned(index)],
  };
}

function section(id: number, content: Code): Code {
  const bytes = flatten(content);
  return [id, unsigned(bytes.length), bytes];
}

function vector(items: readonly Code[]): Code {
  return [unsigned(items.length), items];
}

function text(value: string): Code {
  const bytes = Buffer.from(value);
  return [unsigned(bytes.length), [...bytes]];
}

function flatten(code: Code, into: number[] = []): number[] {
  for (const part of code) {
    if (typeof part === 'number') into.push(part);
    else flatten(part, into);
  }
  return into;
}

/** LEB128. */
function unsigned(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  do {
    const low = rest % 128;
    rest = Math.floor(rest / 128);
    bytes.push(rest > 0 ? low | 0x80 : low);
  } while (rest > 0);
  return bytes;
}

function signed(value: number): number[] {
  const bytes: number[] = [];
  let rest = value | 0;
  for (;;) {
    const low = rest & 0x7f;
    rest >>= 7;
    if ((rest === 0 && (low & 0x40) === 0) || (rest === -1 && (low & 0x40) !== 0)) return [...bytes, low];
    bytes.push(low | 0x80);
  }
}
