import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { ForwardBackwardRequest, WireDatum, WireTensor } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';

export const MAX_DATUMS = 1024;

/** A ratio is never below or above these: a log-ratio is at most 20. */
const NO_LOWER_BOUND = 1e-9;
const NO_UPPER_BOUND = 1e9;
const PLAIN: LossSettings = { ...DEFAULT_LOSS_SETTINGS, dualClip: 0, entropyCoefficient: 0 };
/** Loss settings by name, with the service's defaults. */
const DEFAULTS: { readonly [name: string]: Readonly<Record<string, number>> } = {
  cross_entropy: {},
  importance_sampling: {},
  ppo: { clip_low_threshold: 0.8, clip_high_threshold: 1.2 },
  cispo: { clip_low_threshold: 0.8, clip_high_threshold: 1.2 },
  dro: { beta: 0.05 },
};

/** A loss as the engine computes it: a sum over the tokens of its sequences. */
export interface TokenLoss {
  readonly settings: LossSettings;
  readonly sequences: readonly TrainingSequence[];
  /** The loss, in nats, from log p of each target. */
  value(logProbs: readonly Float32Array[]): number;
}

/**
 * Checks a request and translates it. A sequence is the datum's input with its last target behind, and at place t + 1 stands what
 * the input's position t predicts.
 * @param limits of the model; `maxLength` counts input tokens
 * @throws ApiError 400 naming the field
 */
export function readLoss(
  { lossFn, lossConfig, data }: ForwardBackwardRequest,
  limits: { readonly vocabularySize: number; readonly maxLength: number },
): TokenLoss {
  const config = readConfig(lossFn, lossConfig);
  if (data.length === 0 || data.length > MAX_DATUMS) {
    throw badRequest(`data has ${data.length} datums; send 1 to ${MAX_DATUMS} in a request`, 'data');
  }
  const names = lossFn === 'cross_entropy' ? ['weights'] : ['logprobs', 'advantages'];
  const sequences = data.map((datum, i) => readDatum(datum, `data[${i}]`, names, limits));
  return {
    settings: settingsOf(lossFn, config),
    sequences,
    value: logProbs => {
      let sum = 0;
      sequences.forEach((sequence, i) => {
        for (let t = 1; t < sequence.tokenIds.length; t++) {
          sum += tokenLoss(lossFn, config, sequence, t, logProbs[i][t]);
        }
      });
      return sum;
    },
  };
}

function readConfig(
  lossFn: string,
  given: ForwardBackwardRequest['lossConfig'],
): Readonly<Record<string, number>> {
  if (!Object.hasOwn(DEFAULTS, lossFn)) {
    const known = Object.keys(DEFAULTS).join(', ');
    throw badRequest(
      `loss_fn ${JSON.stringify(lossFn.slice(0, 100))} is not supported; choose ${known}`,
      'loss_fn',
    );
  }
  const defaults = DEFAULTS[lossFn];
  for (const [name, value] of Object.entries(given)) {
    if (Object.hasOwn(defaults, name) && Number.isFinite(value)) continue;
    const known = Object.keys(defaults).join(', ') || 'no settings';
    throw badRequest(
      `loss_fn_config.${name.slice(0, 100)} ${JSON.stringify(value)?.slice(0, 100)} is not supported: ${lossFn} has ${known}, each a finite number`,
      'loss_fn_config',
    );
  }
  const config = { ...defaults, ...given } as Record<string, number>;
  const { clip_low_threshold: low = 1, clip_high_threshold: high = 1, beta = 1 } = config;
  if (low < 0 || low > 1 || high < 1) {
    throw badRequest(
      `the bounds of the ratio are ${low} and ${high}; they must be 0 ≤ clip_low_threshold ≤ 1 ≤ clip_high_threshold`,
      'loss_fn_config',
    );
  }
  if (beta <= 0) throw badRequest(`loss_fn_config.beta is ${beta}; it must be above 0`, 'loss_fn_config');
  return config;
}

function settingsOf(lossFn: string, config: Readonly<Record<string, number>>): LossSettings {
  const low = Math.max(config.clip_low_threshold, NO_LOWER_BOUND);
  const clip = { clipLow: 1 - low, clipHigh: config.clip_high_threshold - 1 };
  switch (lossFn) {
    case 'importance_sampling':
      return { ...PLAIN, policy: 'ppo', clipLow: 1 - NO_LOWER_BOUND, clipHigh: NO_UPPER_BOUND };
    case 'ppo':
    case 'cispo':
      return { ...PLAIN, policy: lossFn, ...clip };
    case 'dro':
      return { ...PLAIN, policy: 'dro', dro: { beta: config.beta } };
    default:
      return { ...PLAIN, policy: 'cross_entropy' };
  }
}

function readDatum(
  { tokens, inputs }: WireDatum,
  where: string,
  names: readonly string[],
  { vocabularySize, maxLength }: { readonly vocabularySize: number; readonly maxLength: number },
): TrainingSequence {
  const { length } = tokens;
  if (length === 0 || length > maxLength) {
    throw badRequest(`${where}.model_input has ${length} tokens; it must have 1 to ${maxLength}`, 'data');
  }
  for (const name of inputs.keys()) {
    if (name === 'target_tokens' || names.includes(name)) continue;
    throw badRequest(
      `${where}.loss_fn_inputs.${name.slice(0, 100)} is not an input of this loss: it takes target_tokens, ${names.join(', ')}`,
      'loss_fn_inputs',
    );
  }
  const field = (name: string): string => `${where}.loss_fn_inputs.${name}`;
  const array = (name: string, whenAbsent?: number): Float32Array => {
    const tensor = inputs.get(name);
    const shifted = new Float32Array(length + 1);
    if (tensor === undefined && whenAbsent !== undefined) return shifted.fill(whenAbsent, 1);
    shifted.set(oneEach(tensor, length, field(name)), 1);
    const bad = shifted.findIndex(x => !Number.isFinite(x));
    if (bad >= 0)
      throw badRequest(`${field(name)}[${bad - 1}] is ${shifted[bad]}; it must be finite`, 'loss_fn_inputs');
    return shifted;
  };
  const targets = new Int32Array(length + 1);
  targets.set(oneEach(inputs.get('target_tokens'), length, field('target_tokens')), 1);
  for (const [what, ids] of [
    [`${where}.model_input`, tokens],
    [field('target_tokens'), targets],
  ] as const) {
    const bad = ids.findIndex(id => id < 0 || id >= vocabularySize);
    if (bad >= 0)
      throw badRequest(`${what} has token ${ids[bad]}; the vocabulary has ${vocabularySize}`, 'data');
  }
  const tokenIds = new Int32Array(length + 1);
  tokenIds.set(tokens);
  tokenIds[length] = targets[length];
  const zeros = new Float32Array(length + 1);
  const supervised = names.includes('weights');
  return {
    tokenIds,
    targets,
    lossMask: new Uint8Array(length + 1).fill(1, 1),
    logProbs: supervised ? zeros : array('logprobs'),
    advantages: supervised ? zeros : array('advantages'),
    ...(supervised ? { crossEntropyWeights: array('weights', 1) } : {}),
  };
}

/** The numbers of a tensor that has one for each input token. */
function oneEach(tensor: WireTensor | undefined, length: number, where: string): WireTensor['values'] {
  if (tensor === undefined)
    throw badRequest(`${where} is missing: send one for each input token`, 'loss_fn_inputs');
  const { values, shape } = tensor;
  if (shape.length === 1 && values.length === length) return values;
  throw badRequest(
    `${where} has shape [${shape.join(', ')}]; send [${length}], one for each input token`,
    'loss_fn_inputs',
  );
}

/** Loss of one token in nats, as section *Losses* of the page has it. */
function tokenLoss(
  lossFn: string,
  { clip_low_threshold: low, clip_high_threshold: high, beta }: Readonly<Record<string, number>>,
  { logProbs, advantages, crossEntropyWeights }: TrainingSequence,
  t: number,
  logProb: number,
): number {
  const advantage = advantages[t];
  const move = logProb - logProbs[t];
  const ratio = Math.exp(Math.min(Math.max(move, -20), 20));
  const clipped = Math.min(Math.max(ratio, low), high);
  switch (lossFn) {
    case 'importance_sampling':
      return -ratio * advantage;
    case 'ppo':
      return -Math.min(ratio * advantage, clipped * advantage);
    case 'cispo':
      return -clipped * advantage * logProb;
    case 'dro':
      return 0.5 * beta * move * move - advantage * logProb;
    default:
      return -crossEntropyWeights![t] * logProb;
  }
}
