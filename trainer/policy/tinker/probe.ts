import { datumOf } from './datum.ts';
import { TINKER_PROFILES, type TinkerServer } from './profiles.ts';
import type { TinkerModel } from './training-session.ts';

const PROBE_TOKENS = 8;
/** A step that changes nothing: its learning rate is 0. */
const STILL = { learningRate: 0, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, clipNorm: 0 };

/**
 * Finds out by a separate model whether the server sums or averages, where it reports the norm of gradients; the model ends
 * without open gradients. The datum has the greatest token id, which the server must know.
 * @returns false where the server reports no norm
 * @throws Error naming the setting that is wrong
 */
export async function probeServer(
  model: TinkerModel,
  server: TinkerServer,
  vocabularySize: number,
): Promise<boolean> {
  const ids = Int32Array.from({ length: PROBE_TOKENS }, (_, i) => (i % 2 === 0 ? vocabularySize - 1 : 0));
  const datum = datumOf(ids, { weights: new Float32Array(PROBE_TOKENS).fill(1) });
  const norm = async (count: number) => {
    const loss = { name: 'cross_entropy', config: {} };
    const { result } = await model.step(new Array(count).fill(datum), loss, STILL);
    return gradientNorm((await result).metrics);
  };
  // The first step clears what a model before it may have left.
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
export function gradientNorm(metrics: Readonly<Record<string, number>>): number | undefined {
  return Object.entries(metrics).find(([name]) => /(?:^|[/_.])grad_norm(?::|$)/.test(name))?.[1];
}
