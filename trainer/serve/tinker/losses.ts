import { shown } from '../../../shared/faults.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { type LossBatch, summedLoss } from '../../policy/learning/loss-program.ts';
import type { ForwardBackwardRequest, WireDatum } from '../../tinker/proto.ts';
import { badRequest } from '../openai/errors.ts';

const MAX_DATUMS = 1024;
/** The service's defaults, and bounds that no ratio reaches. */
const CLIP = { clip_low_threshold: 0.8, clip_high_threshold: 1.2 };
const UNCLIPPED = { clip_low_threshold: 1e-9, clip_high_threshold: 1e9 };

type Config = Readonly<Record<string, number>>;

interface WireLoss {
  readonly config: Config;
  /** The same loss of the trainer. */
  readonly settings: (config: Config) => Partial<LossSettings>;
}

const clipped = (policy: 'ppo' | 'cispo', config: Config): Partial<LossSettings> => ({
  policy,
  clipLow: 1 - Math.max(config.clip_low_threshold, UNCLIPPED.clip_low_threshold),
  clipHigh: config.clip_high_threshold - 1,
});

const LOSSES: Readonly<Record<string, WireLoss>> = {
  cross_entropy: { config: {}, settings: () => ({ policy: 'cross_entropy' }) },
  importance_sampling: { config: {}, settings: () => clipped('ppo', UNCLIPPED) },
  ppo: { config: CLIP, settings: config => clipped('ppo', config) },
  cispo: { config: CLIP, settings: config => clipped('cispo', config) },
  dro: { config: { beta: 0.05 }, settings: ({ beta }) => ({ policy: 'dro', dro: { beta } }) },
};

/** Limits of a model; `maxLength` counts input tokens. */
interface Limits {
  readonly vocabularySize: number;
  readonly maxLength: number;
}

/**
 * Checks a request and translates it. A sequence is the datum's input with its last target behind, and at place t + 1 stands what
 * the input's position t predicts.
 * @throws ApiError 400 naming the field
 */
export function readLoss({ lossFn, lossConfig, data }: ForwardBackwardRequest, limits: Limits): LossBatch {
  if (!Object.hasOwn(LOSSES, lossFn)) {
    const fault = `loss_fn ${JSON.stringify(lossFn.slice(0, 100))} is not supported`;
    throw badRequest(`${fault}; choose ${Object.keys(LOSSES).join(', ')}`, 'loss_fn');
  }
  const loss = LOSSES[lossFn];
  const config = readConfig(lossFn, loss.config, lossConfig);
  if (data.length === 0 || data.length > MAX_DATUMS) {
    throw badRequest(`data has ${data.length} datums; send 1 to ${MAX_DATUMS} in a request`, 'data');
  }
  const names = lossFn === 'cross_entropy' ? ['weights'] : ['logprobs', 'advantages'];
  const sequences = data.map((datum, i) => readDatum(datum, `data[${i}]`, names, limits));
  const plain = { ...DEFAULT_LOSS_SETTINGS, dualClip: 0, entropyCoefficient: 0 };
  return summedLoss(sequences, { ...plain, ...loss.settings(config) });
}

function readConfig(lossFn: string, defaults: Config, given: ForwardBackwardRequest['lossConfig']): Config {
  const refuse = (fault: string) => badRequest(fault, 'loss_fn_config');
  for (const [name, value] of Object.entries(given)) {
    if (Object.hasOwn(defaults, name) && Number.isFinite(value)) continue;
    const setting = `loss_fn_config.${name.slice(0, 100)} ${shown(value)}`;
    const known = Object.keys(defaults).join(', ') || 'no settings';
    throw refuse(`${setting} is not supported: ${lossFn} has ${known}, each a finite number`);
  }
  const config = { ...defaults, ...given } as Config;
  const { clip_low_threshold: low = 1, clip_high_threshold: high = 1, beta = 1 } = config;
  if (low < 0 || low > 1 || high < 1) {
    const wanted = '0 ≤ clip_low_threshold ≤ 1 ≤ clip_high_threshold';
    throw refuse(`the bounds of the ratio are ${low} and ${high}; they must be ${wanted}`);
  }
  if (beta <= 0) throw refuse(`loss_fn_config.beta is ${beta}; it must be above 0`);
  return config;
}

function readDatum(
  { tokens, inputs }: WireDatum,
  where: string,
  names: readonly string[],
  { vocabularySize, maxLength }: Limits,
): TrainingSequence {
  const { length } = tokens;
  if (length === 0 || length > maxLength) {
    throw badRequest(`${where}.model_input has ${length} tokens; it must have 1 to ${maxLength}`, 'data');
  }
  const refuse = (name: string, fault: string) =>
    badRequest(`${where}.loss_fn_inputs.${name.slice(0, 100)}${fault}`, 'loss_fn_inputs');
  const known = ['target_tokens', ...names];
  const other = [...inputs.keys()].find(name => !known.includes(name));
  if (other !== undefined) throw refuse(other, ` is not an input of this loss: it takes ${known.join(', ')}`);
  /** Fills in an input after the first place, which nothing predicts. */
  const input = <A extends Float32Array | Int32Array>(name: string, into: A): A => {
    const { values, shape } = inputs.get(name) ?? {};
    if (!values || !shape) throw refuse(name, ' is missing: send one for each input token');
    if (shape.length !== 1 || values.length !== length) {
      throw refuse(name, ` has shape [${shape.join(', ')}]; send [${length}], one for each input token`);
    }
    into.set(values, 1);
    const bad = into.findIndex(x => !Number.isFinite(x));
    if (bad >= 0) throw refuse(name, `[${bad - 1}] is ${into[bad]}; it must be finite`);
    return into;
  };
  const numbers = (name: string) => {
    const array = new Float32Array(length + 1);
    return names.includes(name) ? input(name, array) : array;
  };
  const targets = input('target_tokens', new Int32Array(length + 1));
  for (const [what, ids] of [
    ['model_input', tokens],
    ['loss_fn_inputs.target_tokens', targets],
  ] as const) {
    const bad = ids.find(id => id < 0 || id >= vocabularySize);
    if (bad === undefined) continue;
    throw badRequest(`${where}.${what} has token ${bad}; the vocabulary has ${vocabularySize}`, 'data');
  }
  const lossMask = new Uint8Array(length + 1).fill(1, 1);
  const weights = inputs.has('weights') ? () => numbers('weights') : () => Float32Array.from(lossMask);
  return {
    tokenIds: Int32Array.from([...tokens, targets[length]]),
    targets,
    lossMask,
    logProbs: numbers('logprobs'),
    advantages: numbers('advantages'),
    ...(names.includes('weights') && { crossEntropyWeights: weights() }),
  };
}
