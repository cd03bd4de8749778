import { excerpt, TinkerError, type TinkerHttp } from './http.ts';
import { datumOf } from './losses.ts';
import { TINKER_PROFILES, type TinkerServer } from './profiles.ts';
import { CROSS_ENTROPY, type TinkerModel, type TinkerStep } from './training-session.ts';

const PROBE_TOKENS = 8;
/** A step that changes nothing: its learning rate is 0. */
const STILL = { learningRate: 0, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, clipNorm: 0 };

/**
 * Finds out with a separate model whether the server sums or averages, if it reports the norm of gradients; the model
 * has no open gradients at the end. The datum has the largest token id, which the server must know.
 * @returns false where the server reports no norm
 * @throws Error naming the wrong setting
 */
export async function probeServer(
  model: TinkerModel,
  server: TinkerServer,
  vocabularySize: number,
): Promise<boolean> {
  const ids = Int32Array.from({ length: PROBE_TOKENS }, (_, i) => (i % 2 === 0 ? vocabularySize - 1 : 0));
  const datum = datumOf(ids, { weights: new Float32Array(PROBE_TOKENS).fill(1) });
  const norm = async (count: number) => {
    const read = await model.step(new Array(count).fill(datum), CROSS_ENTROPY, STILL);
    return gradientNorm((await read()).metrics);
  };
  // The first step clears any gradients of an earlier model.
  await norm(1);
  const [once, twice] = [await norm(1), await norm(2)];
  if (once === undefined || twice === undefined || !(once > 0)) return false;
  const found = twice / once > 1.5 ? 'sum' : 'mean';
  if (found === TINKER_PROFILES[server].reduction) return true;
  const fitting = Object.entries(TINKER_PROFILES).filter(([, { reduction }]) => reduction === found);
  throw new Error(
    `policy.tinker.server is ${server}, but the server ${found === 'sum' ? 'sums' : 'averages'} over datums: one datum has a gradient of norm ${once.toFixed(4)}, the same twice one of ${twice.toFixed(4)}. Set it to ${fitting.map(([name]) => name).join(' or ')}`,
  );
}

/** Norm of the gradient in the metrics of a step; undefined where the server does not report it. */
export function gradientNorm(metrics: TinkerStep['metrics']): number | undefined {
  const isNorm = /(?:^|[/_.])grad_norm(?::|$)/;
  return Object.entries(metrics).find(
    (entry): entry is [string, number] => typeof entry[1] === 'number' && isNorm.test(entry[0]),
  )?.[1];
}

/** @throws TinkerError where the server lacks the model, or holds shorter sequences */
export async function checkCapabilities(
  http: TinkerHttp,
  { baseModel, maxSequenceLength }: { readonly baseModel: string; readonly maxSequenceLength: number },
): Promise<void> {
  const reply = await http.json('GET', 'get_server_capabilities').catch((error: TinkerError) => {
    if (error.status === 404) return {};
    throw error;
  });
  const { supported_models: list } = reply as { readonly supported_models?: unknown };
  const models = (Array.isArray(list) ? (list as (SupportedModel | null)[]) : []).filter(
    model => typeof model?.model_name === 'string',
  ) as SupportedModel[];
  if (models.length === 0) return;
  const trained = models.filter(({ trainable }) => trainable !== false);
  const found = trained.find(({ model_name }) => model_name === baseModel);
  if (!found) {
    const names = trained.slice(0, 30).map(({ model_name }) => model_name);
    const fault = `${http.url} does not train ${baseModel}, or no longer does`;
    throw new TinkerError(`policy.init: ${fault}; it trains ${excerpt(names.join(', ')) || 'nothing'}`);
  }
  const longest = found.max_context_length;
  if (typeof longest !== 'number' || longest >= maxSequenceLength) return;
  const fault = `policy.context is ${maxSequenceLength}`;
  throw new TinkerError(`${fault}, and ${baseModel} at ${http.url} holds ${longest} tokens`);
}

interface SupportedModel {
  readonly model_name: string;
  readonly trainable?: boolean;
  readonly max_context_length?: number;
}
