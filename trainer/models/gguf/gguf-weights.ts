import type { FileHandle } from 'node:fs/promises';
import type { BlockStorage } from '../../tensor/graph/operations/blocks.ts';
import { expertPrefix, layerPrefix } from '../parameters.ts';
import { architectureOf, ROPE_TENSORS } from './architectures.ts';
import { BLOCK_FORMATS, decodeBlocks, type StoredBlocks, storageOf, storeBlocks } from './blocks.ts';
import { GgufError, type GgufHeader, type GgufTensor, readFully } from './gguf-file.ts';

/** Tensors are read in pieces of about this many bytes. */
const PIECE_BYTES = 4 * 2 ** 20;

/** A weight under its Hugging Face name: a tensor, or an expert's part of one. */
interface Weight {
  readonly shape: readonly number[];
  readonly tensor: GgufTensor;
  /** First byte of it. */
  readonly start: number;
  /** Heads with rows that are stored as interleaved rotary pairs. */
  readonly heads: number | null;
  /** Added to each element. */
  readonly offset: number;
}

/** Weights of a GGUF file by Hugging Face name, as float32 as in transformers' loader. */
export class GgufWeights {
  readonly tensors: ReadonlyMap<string, Weight>;
  readonly #handle: FileHandle;
  readonly #path: string;

  /** @throws GgufError for an architecture that is not supported */
  constructor(handle: FileHandle, header: GgufHeader) {
    this.#handle = handle;
    this.#path = header.path;
    this.tensors = weightsOf(header);
  }

  /** The weight in row-major order; into `target` when it is given. */
  async read(name: string, target?: Float32Array): Promise<Float32Array> {
    const weight = this.tensors.get(name);
    if (weight === undefined) throw new GgufError(`${this.#path} has no tensor for ${name}`);
    const count = weight.shape.reduce((a, b) => a * b, 1);
    const out = target ?? new Float32Array(count);
    if (out.length !== count) {
      throw new GgufError(
        `${this.#path}: ${name} has shape [${weight.shape.join(', ')}], ${count} elements, where ${out.length} are expected`,
      );
    }
    await readElements(this.#handle, weight.tensor, weight.start, out, this.#path);
    if (weight.offset !== 0) for (let i = 0; i < count; i++) out[i] += weight.offset;
    if (weight.heads !== null) separatePairs(out, weight.heads, weight.shape);
    return out;
  }

  /** Storage in memory of a matrix in blocks; null where it is not in blocks, or its numbers differ from the file's. */
  storage(name: string): BlockStorage | null {
    const weight = this.tensors.get(name);
    if (weight === undefined || weight.shape.length !== 2 || weight.offset !== 0) return null;
    return storageOf(weight.tensor.type);
  }

  /** Reads a matrix in the form of {@link storage}. */
  async readBlocks(name: string, { codes, scales, minimums }: StoredBlocks): Promise<void> {
    const { tensor, start, shape, heads } = this.tensors.get(name)!;
    const { bits, block } = storageOf(tensor.type)!;
    const count = shape[0] * shape[1];
    for await (const { bytes, from, to } of readPieces(this.#handle, tensor, start, count, this.#path)) {
      storeBlocks(bytes, tensor.type, {
        codes: codes.subarray((from * bits) / 8, (to * bits) / 8),
        scales: scales.subarray(from / block, to / block),
        minimums: minimums?.subarray(from / block, to / block) ?? null,
      });
    }
    if (heads === null) return;
    const widths = [codes, scales, minimums].flatMap(rows => rows ?? []);
    for (const rows of widths) separatePairs(rows, heads, [shape[0], rows.length / shape[0]]);
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Numbers of the tensors with rotary factors. */
export async function readRopeFactors(
  handle: FileHandle,
  { path, tensors }: GgufHeader,
): Promise<ReadonlyMap<string, readonly number[]>> {
  const factors = new Map<string, readonly number[]>();
  for (const name of Object.keys(ROPE_TENSORS)) {
    const tensor = tensors.get(name);
    if (tensor === undefined) continue;
    const numbers = new Float32Array(tensor.shape.reduce((a, b) => a * b, 1));
    await readElements(handle, tensor, tensor.start, numbers, path);
    factors.set(name, [...numbers]);
  }
  return factors;
}

async function readElements(
  handle: FileHandle,
  tensor: GgufTensor,
  from: number,
  out: Float32Array,
  path: string,
): Promise<void> {
  for await (const piece of readPieces(handle, tensor, from, out.length, path)) {
    decodeBlocks(piece.bytes, tensor.type, out.subarray(piece.from, piece.to));
  }
}

/** This many elements from a place of the file, as pieces of whole blocks; each is valid until the next. */
async function* readPieces(
  handle: FileHandle,
  { type }: GgufTensor,
  start: number,
  count: number,
  path: string,
): AsyncGenerator<{ readonly bytes: Uint8Array; readonly from: number; readonly to: number }> {
  const { elements, bytes } = BLOCK_FORMATS[type];
  const pieceBlocks = Math.max(1, Math.floor(PIECE_BYTES / bytes));
  const blocks = count / elements;
  const piece = new Uint8Array(Math.min(blocks, pieceBlocks) * bytes);
  for (let block = 0; block < blocks; block += pieceBlocks) {
    const end = Math.min(blocks, block + pieceBlocks);
    const part = piece.subarray(0, (end - block) * bytes);
    await readFully(handle, part, start + block * bytes, path);
    yield { bytes: part, from: block * elements, to: end * elements };
  }
}

/** Rows 2i and 2i + 1 of each head become rows i and i + half: the reverse of llama.cpp's `permute`. */
function separatePairs(
  out: Float32Array | Uint8Array,
  heads: number,
  [rows, width = 1]: readonly number[],
): void {
  const half = rows / heads / 2;
  const size = 2 * half * width;
  for (let start = 0; start < out.length; start += size) {
    const head = out.slice(start, start + size);
    for (let row = 0; row < 2 * half; row++) {
      const to = start + ((row & 1) * half + (row >> 1)) * width;
      out.set(head.subarray(row * width, (row + 1) * width), to);
    }
  }
}

/** A layer's tensors by Hugging Face's name of the module. */
const LAYER_MODULES: Readonly<Record<string, string>> = {
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_qkv: 'self_attn.qkv_proj',
  attn_output: 'self_attn.o_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  post_attention_norm: 'post_attention_layernorm',
  ffn_norm: 'post_attention_layernorm',
  post_ffw_norm: 'post_feedforward_layernorm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
  ffn_gate_inp: 'mlp.gate',
};
const EXPERT_MODULES: Readonly<Record<string, string>> = {
  ffn_gate_exps: 'gate_proj',
  ffn_up_exps: 'up_proj',
  ffn_down_exps: 'down_proj',
};
const MODEL_MODULES: Readonly<Record<string, string>> = {
  token_embd: 'model.embed_tokens',
  output_norm: 'model.norm',
  output: 'lm_head',
};
const NAME = /^(?:blk\.(\d{1,4})\.)?(\w+)\.(weight|bias)$/;

/** Weights by Hugging Face name. An unknown tensor keeps its name, and the check of the model's weights rejects it. */
function weightsOf(header: GgufHeader): Map<string, Weight> {
  const { permuted, normsPlusOne, normsOnBothSides, fused } = architectureOf(header);
  const number = (key: string) =>
    Number(header.metadata.get(`${header.metadata.get('general.architecture')}.attention.${key}`));
  const headCounts: Readonly<Record<string, number>> = permuted
    ? { attn_q: number('head_count'), attn_k: number('head_count_kv') || number('head_count') }
    : {};
  const modules = {
    ...LAYER_MODULES,
    ...(normsOnBothSides ? { ffn_norm: 'pre_feedforward_layernorm' } : {}),
    ...(fused ? { ffn_up: 'mlp.gate_up_proj' } : {}),
  };
  const weights = new Map<string, Weight>();
  for (const tensor of header.tensors.values()) {
    if (Object.hasOwn(ROPE_TENSORS, tensor.name)) continue;
    const [, layer, module, kind] = NAME.exec(tensor.name) ?? [];
    const plain: Weight = {
      shape: tensor.shape,
      tensor,
      start: tensor.start,
      heads: headCounts[module] ?? null,
      offset: normsPlusOne && module?.endsWith('norm') ? -1 : 0,
    };
    if (plain.heads !== null && !(plain.shape[0] % (2 * plain.heads) === 0)) {
      throw new GgufError(
        `${header.path}: ${tensor.name} has ${plain.shape[0]} rows, which ${plain.heads} heads do not divide`,
      );
    }
    if (layer !== undefined && Object.hasOwn(EXPERT_MODULES, module)) {
      const [experts, ...shape] = tensor.shape;
      const bytes = (tensor.end - tensor.start) / experts;
      for (let index = 0; index < experts; index++) {
        const name = `${expertPrefix(Number(layer), index)}.${EXPERT_MODULES[module]}.${kind}`;
        weights.set(name, { ...plain, shape, start: tensor.start + index * bytes });
      }
      continue;
    }
    const known = layer === undefined ? MODEL_MODULES[module] : modules[module as keyof typeof modules];
    const prefix = layer === undefined ? '' : `${layerPrefix(Number(layer))}.`;
    weights.set(known === undefined ? tensor.name : `${prefix}${known}.${kind}`, plain);
  }
  return weights;
}
