import type { Json, JsonObject } from '../../shared/json.ts';
import {
  type DecoderConfig,
  ModelConfigError,
  number,
  numbers,
  optionalNumber,
  type RopeConfig,
  type RopeScaling,
  show,
} from './config.ts';

const KINDS = ['default', 'linear', 'dynamic', 'llama3', 'yarn', 'longrope'];

/**
 * Reads rotary settings, in the spelling before transformers 5 (`rope_theta`, `rope_scaling`) or since
 * (`rope_parameters`).
 * @param json the config, for the fields next to the settings
 * @param both `rope_parameters` or `rope_scaling`
 * @throws ModelConfigError naming the kind that is not supported, or the field that is broken
 */
export function parseRope(json: JsonObject, both: JsonObject): RopeConfig {
  const theta = number(both, 'rope_theta', number(json, 'rope_theta', 1e4));
  return { theta, scaling: parseScaling(json, both) };
}

function parseScaling(json: JsonObject, both: JsonObject): RopeScaling {
  const kind = both.rope_type ?? both.type ?? 'default';
  const maxPositions = number(json, 'max_position_embeddings', 2048);
  const original = (): number =>
    number(
      json,
      'original_max_position_embeddings',
      number(both, 'original_max_position_embeddings', maxPositions),
    );
  switch (kind) {
    case 'default':
      return { kind: 'none' };
    case 'linear':
    case 'dynamic':
      return { kind, factor: number(both, 'factor') };
    case 'llama3':
      return {
        kind,
        factor: number(both, 'factor'),
        lowFrequencyFactor: number(both, 'low_freq_factor'),
        highFrequencyFactor: number(both, 'high_freq_factor'),
        originalMaxPositions: original(),
      };
    case 'yarn': {
      const factor = optionalNumber(both, 'factor') ?? maxPositions / original();
      return {
        kind,
        factor,
        betaFast: optionalNumber(both, 'beta_fast') || 32,
        betaSlow: optionalNumber(both, 'beta_slow') || 1,
        attentionFactor: optionalNumber(both, 'attention_factor') ?? yarnAttention(both, factor),
        originalMaxPositions: original(),
        truncate: both.truncate !== false,
      };
    }
    case 'longrope':
    case 'su': {
      const factor = optionalNumber(both, 'factor') ?? maxPositions / original();
      const grown = factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(original()));
      return {
        kind: 'longrope',
        shortFactors: numbers(both, 'short_factor'),
        longFactors: numbers(both, 'long_factor'),
        attentionFactor: optionalNumber(both, 'attention_factor') ?? grown,
        originalMaxPositions: original(),
      };
    }
    default:
      throw new ModelConfigError(`rope_type ${show(kind)} is not supported; supported: ${KINDS.join(', ')}`);
  }
}

/** YaRN's factor on cos and sin where the config names none. */
function yarnAttention(both: JsonObject, factor: number): number {
  const grown = (scale: number) => (factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1);
  const [one, all] = [optionalNumber(both, 'mscale'), optionalNumber(both, 'mscale_all_dim')];
  return one && all ? grown(one) / grown(all) : grown(1);
}

/** Rotary settings as {@link parseRope} and transformers read them. */
export function scalingToJson(scaling: RopeScaling): { [key: string]: Json } {
  switch (scaling.kind) {
    case 'none':
      return { rope_type: 'default' };
    case 'linear':
    case 'dynamic':
      return { rope_type: scaling.kind, factor: scaling.factor };
    case 'llama3':
      return {
        rope_type: 'llama3',
        factor: scaling.factor,
        low_freq_factor: scaling.lowFrequencyFactor,
        high_freq_factor: scaling.highFrequencyFactor,
        original_max_position_embeddings: scaling.originalMaxPositions,
      };
    case 'yarn':
      return {
        rope_type: 'yarn',
        factor: scaling.factor,
        beta_fast: scaling.betaFast,
        beta_slow: scaling.betaSlow,
        attention_factor: scaling.attentionFactor,
        original_max_position_embeddings: scaling.originalMaxPositions,
        ...(scaling.truncate ? {} : { truncate: false }),
      };
    case 'longrope':
      return {
        rope_type: 'longrope',
        short_factor: [...scaling.shortFactors],
        long_factor: [...scaling.longFactors],
        attention_factor: scaling.attentionFactor,
        original_max_position_embeddings: scaling.originalMaxPositions,
      };
  }
}

/**
 * Rotary frequencies of each pair of a head, in radians a position: float64 [headDimension / 2]. Where only a part of
 * the head is rotated, its pairs come first and the rest have frequency 0.
 */
export function ropeFrequencies(config: DecoderConfig, rope: RopeConfig = config.rope): Float64Array {
  const pairs = config.rotaryDimension / 2;
  const frequencies = new Float64Array(config.headDimension / 2);
  const base = Float64Array.from({ length: pairs }, (_, i) => rope.theta ** (-i / pairs));
  frequencies.set(base.map(scaledFrequency(config, rope, pairs)));
  return frequencies;
}

/** The scaled frequency of pair i. */
function scaledFrequency(
  config: DecoderConfig,
  { theta, scaling }: RopeConfig,
  pairs: number,
): (frequency: number, i: number) => number {
  switch (scaling.kind) {
    case 'none':
    case 'dynamic':
      return frequency => frequency;
    case 'linear':
      return frequency => frequency / scaling.factor;
    case 'llama3':
      return frequency => llama3Frequency(frequency, scaling);
    case 'yarn': {
      const { factor, originalMaxPositions, truncate } = scaling;
      // The pair with this many rotations within the original context.
      const pairOf = (turns: number) =>
        (pairs * Math.log(originalMaxPositions / (turns * 2 * Math.PI))) / Math.log(theta);
      const bounds = [pairOf(scaling.betaFast), pairOf(scaling.betaSlow)];
      const [first, last] = truncate ? [Math.floor(bounds[0]), Math.ceil(bounds[1])] : bounds;
      const [low, high] = [Math.max(first, 0), Math.min(last, 2 * pairs - 1)];
      const width = low === high ? 0.001 : high - low;
      return (frequency, i) => {
        const stretched = Math.min(1, Math.max(0, (i - low) / width));
        return (frequency / factor) * stretched + frequency * (1 - stretched);
      };
    }
    case 'longrope': {
      const context = config.context ?? config.maxPositions;
      const factors = context > scaling.originalMaxPositions ? scaling.longFactors : scaling.shortFactors;
      return (frequency, i) => frequency / factors[i];
    }
  }
}

/** Llama 3.1: long waves are stretched, short ones kept, those between interpolated. */
function llama3Frequency(frequency: number, scaling: RopeScaling & { readonly kind: 'llama3' }): number {
  const wavelength = (2 * Math.PI) / frequency;
  const { factor, lowFrequencyFactor, highFrequencyFactor, originalMaxPositions } = scaling;
  if (wavelength > originalMaxPositions / lowFrequencyFactor) return frequency / factor;
  if (wavelength < originalMaxPositions / highFrequencyFactor) return frequency;
  const smooth =
    (originalMaxPositions / wavelength - lowFrequencyFactor) / (highFrequencyFactor - lowFrequencyFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

/** Rotary settings of all layers: the common ones, then those of local layers if they differ. */
function ropesOf({ rope, localRope }: DecoderConfig): readonly RopeConfig[] {
  return localRope === null ? [rope] : [rope, localRope];
}

/** Width of {@link ropeTables}: half a head for each of the rotary settings. */
export function ropeWidth(config: DecoderConfig): number {
  return (ropesOf(config).length * config.headDimension) / 2;
}

/**
 * cos and sin of every position's rotary angles, each [positions, ropeWidth] in row-major order: first the common
 * angles, then those of local layers. {@link ropeColumns} selects a layer's.
 */
export function ropeTables(
  config: DecoderConfig,
  positions: ArrayLike<number>,
): { readonly cos: Float32Array; readonly sin: Float32Array } {
  const half = config.headDimension / 2;
  const ropes = ropesOf(config);
  const width = ropes.length * half;
  const cos = new Float32Array(positions.length * width);
  const sin = new Float32Array(positions.length * width);
  ropes.forEach((rope, index) => {
    const frequencies = ropeFrequencies(config, rope);
    const factor = 'attentionFactor' in rope.scaling ? rope.scaling.attentionFactor : 1;
    for (let t = 0; t < positions.length; t++) {
      for (let i = 0; i < half; i++) {
        const angle = positions[t] * frequencies[i];
        const turned = i < config.rotaryDimension / 2 ? factor : 1;
        const at = t * width + index * half + i;
        cos[at] = turned * Math.cos(angle);
        sin[at] = turned * Math.sin(angle);
      }
    }
  });
  return { cos, sin };
}

/** The columns of {@link ropeTables} for a layer; null where it rotates nothing (NoPE). */
export function ropeColumns(
  config: DecoderConfig,
  layer: number,
): readonly [start: number, end: number] | null {
  const half = config.headDimension / 2;
  const { rope } = config.attentionLayers?.[layer] ?? { rope: 'global' };
  if (rope === 'none') return null;
  return rope === 'local' && config.localRope !== null ? [half, 2 * half] : [0, half];
}
