import { mean } from '../algorithms/statistics.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/metrics.ts';

/** Iterations without different returns, or with answers that are no actions, before a warning. */
const SILENT_ITERATIONS = 3;
/** Iterations that are compared with the first ones, the number of each, and the share of success that counts as lost. */
const COMPARED_AFTER = 10;
const COMPARED = 3;
const LOST_SHARE = 1 / 4;
const LEAST_SUCCESS = 0.05;
/** Share of turns with an action below which the form of answers is the fault. */
const LEAST_VALID = 0.1;

const GIVE =
  'give demonstrations (warm_start.files, docs/how-to/supervised-learning.md), rewards on the way to the goal, or an easier configuration (tags.NAME.config)';

/** Warns, once each, where the first iterations of a run show that it cannot learn, and says what to change. */
export class LearningWatch {
  readonly #settings: Pick<RunSettings, 'train_tags' | 'rollout'>;
  readonly #rows: Metrics[] = [];
  readonly #said = new Set<string>();
  #episodes = 0;
  #least = Number.POSITIVE_INFINITY;
  #most = Number.NEGATIVE_INFINITY;

  constructor(settings: Pick<RunSettings, 'train_tags' | 'rollout'>) {
    this.#settings = settings;
  }

  /**
   * @param metrics of the iteration that has ended
   * @param episodes number of its episodes
   */
  after(metrics: Metrics, episodes: number): readonly string[] {
    const { 'critic/rewards/min': least, 'critic/rewards/max': most } = metrics;
    if (least === undefined || episodes === 0) return [];
    this.#rows.push(metrics);
    this.#episodes += episodes;
    this.#least = Math.min(this.#least, least);
    this.#most = Math.max(this.#most, most);
    const found = [this.#silence(), this.#form(), this.#decline()];
    return found.filter(text => text !== undefined);
  }

  /** All episodes returned the same. */
  #silence(): string | undefined {
    if (this.#rows.length < SILENT_ITERATIONS || this.#least !== this.#most) return undefined;
    const succeeded = this.#rows.some(row => row['train/success'] > 0);
    if (succeeded) return undefined;
    return this.#once(
      'silence',
      `no episode of ${this.#episodes} succeeded, and all returned ${Number(this.#most.toPrecision(3))}: there is nothing to learn from. To change that, ${GIVE}`,
    );
  }

  /** Hardly any answer is an action of the environment. */
  #form(): string | undefined {
    if (this.#rows.length !== SILENT_ITERATIONS) return undefined;
    const { train_tags, rollout } = this.#settings;
    const tag = train_tags.find(name =>
      this.#rows.every(row => (row[`train/${name}/action_is_valid`] ?? 1) < LEAST_VALID),
    );
    if (tag === undefined) return undefined;
    const shown = (100 * this.#rows.at(-1)![`train/${tag}/action_is_valid`]).toFixed(0);
    return this.#once(
      'form',
      `${shown} % of the answers in ${tag} are valid actions: ${
        rollout.constrained
          ? `the environment rejects actions that it lists; list valid ones (\`actions\`, or those of each state)`
          : `list actions (tags.${tag}.actions) and set rollout.constrained, or give demonstrations of well-formed ones (warm_start.files)`
      }`,
    );
  }

  /** Success was there and is lost. */
  #decline(): string | undefined {
    if (this.#rows.length < COMPARED_AFTER) return undefined;
    const first = mean(this.#rows.slice(0, COMPARED).map(row => row['train/success']));
    const last = this.#rows.slice(-COMPARED);
    const now = mean(last.map(row => row['train/success']));
    if (first < LEAST_SUCCESS || now > LOST_SHARE * first) return undefined;
    const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
    return this.#once(
      'decline',
      `success fell from ${percent(first)} to ${percent(now)}: the policy may avoid what costs something before it knows when it pays. ` +
        'Make penalties smaller than the reward of the goal, raise loss.entropy_coefficient, or lower optimizer.learning_rate',
    );
  }

  #once(kind: string, text: string): string | undefined {
    if (this.#said.has(kind)) return undefined;
    this.#said.add(kind);
    return text;
  }
}
