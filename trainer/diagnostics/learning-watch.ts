import { mean } from '../algorithms/statistics.ts';
import type { RunSettings } from '../config/settings.ts';
import type { Metrics } from '../data/episode-metrics.ts';

/** Number of the first and of the last iterations that are looked at, and iterations before the two are compared. */
const COMPARED = 3;
const COMPARED_AFTER = 10;
/**
 * Iterations, and share of those planned, after which success should have risen, the last iterations that are compared, and
 * the success from which on it is high enough.
 */
const RISEN_AFTER = 20;
const RISEN_SHARE = 1 / 4;
const RECENT = 10;
const ENOUGH_SUCCESS = 0.5;
/** Standard errors within which two shares count as equal. */
const STANDARD_ERRORS = 2;
/** Iterations with answers that are no actions before a warning. */
const SILENT_ITERATIONS = COMPARED;
/** Episodes after which rewards are looked at, and the share of those with a rarer return from which a policy learns. */
const LEAST_EPISODES = 256;
const SCARCE = 0.01;
/** Share of the first success below which success counts as lost, and the least first success that is compared. */
const LOST_SHARE = 1 / 4;
const LEAST_SUCCESS = 0.05;
/** Share of turns with an action below which the form of answers is the fault. */
const LEAST_VALID = 0.1;

const GIVE =
  'give demonstrations (warm_start.files, docs/how-to/supervised-learning.md), rewards on the way to the goal, or an easier configuration (tags.NAME.config)';

type WatchedSettings = Pick<RunSettings, 'train_tags' | 'rollout' | 'training' | 'tags'>;

const percent = (share: number): string => `${(100 * share).toFixed(0)} %`;

/** Warns, once each, where the first iterations of a run show that it cannot learn, and says what to change. */
export class LearningWatch {
  readonly #settings: WatchedSettings;
  /** Metrics of the first iterations and of the last ones, so that a long run keeps no more of them. */
  readonly #first: Metrics[] = [];
  readonly #last: Metrics[] = [];
  #iterations = 0;
  #successes = 0;
  #episodes = 0;
  /** Warnings by their kind. */
  readonly #said = new Map<string, string>();
  /** Episodes by their return; absent once enough of them differ. */
  #returns: Map<number, number> | undefined = new Map();

  /** @param earlier rows of the run's metrics from before it was resumed, of which those of iterations count */
  constructor(settings: WatchedSettings, earlier: readonly Metrics[] = []) {
    this.#settings = settings;
    for (const row of earlier) if ('train/success' in row) this.#keep(row);
  }

  /**
   * @param metrics of the iteration that has ended
   * @param returns sums of its episodes' rewards, without penalties of the trainer
   */
  after(metrics: Metrics, returns: readonly number[]): readonly string[] {
    if (returns.length === 0) return [];
    this.#keep(metrics);
    this.#episodes += returns.length;
    this.#successes += Math.round((metrics['train/success'] ?? 0) * returns.length);
    for (const value of this.#returns ? returns : []) {
      this.#returns?.set(value, (this.#returns.get(value) ?? 0) + 1);
    }
    const { train_tags } = this.#settings;
    const stuck = train_tags.map(tag => this.#stuck(tag));
    const found = [this.#scarcity(), this.#form(metrics), this.#decline(), ...stuck];
    return found.filter(text => text !== undefined);
  }

  /** All warnings so far, in their order. */
  get said(): readonly string[] {
    return [...this.#said.values()];
  }

  #keep(metrics: Metrics): void {
    this.#iterations++;
    if (this.#first.length < COMPARED) this.#first.push(metrics);
    this.#last.push(metrics);
    if (this.#last.length > RECENT) this.#last.shift();
  }

  /** All episodes returned the same, or all but a few. */
  #scarcity(): string | undefined {
    if (!this.#returns || this.#episodes < LEAST_EPISODES) return undefined;
    const [[usual, count]] = [...this.#returns].sort((a, b) => b[1] - a[1]);
    const others = this.#episodes - count;
    if (Math.max(others, this.#successes) > SCARCE * this.#episodes) {
      this.#returns = undefined;
      return undefined;
    }
    const shown = Number(usual.toPrecision(3));
    return this.#once(
      'scarcity',
      `${
        others === 0
          ? `no episode of ${this.#episodes} succeeded, and all returned ${shown}: there is nothing to learn from`
          : `${others} of ${this.#episodes} episodes returned anything but ${shown}, and ${this.#successes} succeeded: too few to learn from`
      }. To change that, ${GIVE}`,
    );
  }

  /** Hardly any answer is an action of the environment. */
  #form(metrics: Metrics): string | undefined {
    if (this.#iterations !== SILENT_ITERATIONS) return undefined;
    const { train_tags, rollout } = this.#settings;
    const tag = train_tags.find(name =>
      this.#first.every(row => (row[`train/${name}/action_is_valid`] ?? 1) < LEAST_VALID),
    );
    if (tag === undefined) return undefined;
    const shown = (100 * metrics[`train/${tag}/action_is_valid`]).toFixed(0);
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
    if (this.#iterations < COMPARED_AFTER) return undefined;
    const first = mean(this.#first.map(row => row['train/success']));
    const now = mean(this.#last.slice(-COMPARED).map(row => row['train/success']));
    if (first < LEAST_SUCCESS || now > LOST_SHARE * first) return undefined;
    return this.#once(
      'decline',
      `success fell from ${percent(first)} to ${percent(now)}: the policy may avoid what costs something before it knows when it pays. ` +
        'Make penalties smaller than the reward of the goal, raise loss.entropy_coefficient, or lower optimizer.learning_rate',
    );
  }

  /** Success is where it began, though enough iterations have passed; silent where there is none and the return rises. */
  #stuck(tag: string): string | undefined {
    const { training, tags } = this.#settings;
    if (this.#iterations < Math.max(RISEN_AFTER, RISEN_SHARE * training.steps)) return undefined;
    const of = (rows: readonly Metrics[], name: string) =>
      rows.map(row => row[`train/${tag}/${name}`]).filter(value => value !== undefined);
    const windows = [this.#first, this.#last];
    const [before, now] = windows.map(rows => mean(of(rows, 'success')));
    const counts = windows.map(rows => of(rows, 'episodes').reduce((sum, count) => sum + count, 0));
    const random = tags[tag].random_success;
    const start = Math.max(before, random ?? 0);
    const error = Math.sqrt(start * (1 - start) * counts.reduce((sum, count) => sum + 1 / count, 0));
    // Not a number where the tag had no episodes.
    if (!(now < ENOUGH_SUCCESS && now <= start + STANDARD_ERRORS * error)) return undefined;
    const earned = of(this.#first, 'episodic_return');
    const returns = [mean(earned), mean(of(this.#last, 'episodic_return'))];
    const rises = returns[1] > Math.max(...earned);
    if (rises && start === 0) return undefined;
    const [from, to] = returns.map(value => Number(value.toPrecision(2)));
    return this.#once(
      `stuck ${tag}`,
      `success in ${tag} has not risen in ${this.#iterations} iterations: ${percent(before)} at first, ${percent(now)} in the last ${RECENT}` +
        `${random === null ? '' : `, ${percent(random)} at random`}; its return went from ${from} to ${to}. ` +
        (rises
          ? 'It earns more without succeeding: see what it does (`view`), and reward what leads to success. '
          : 'See what it does (`view`), and whether the observation says in few words which action is better: a small policy compares numbers slowly. ') +
        `Else ${GIVE}, or try more episodes (rollout.env_groups) and iterations (training.steps)`,
    );
  }

  #once(kind: string, text: string): string | undefined {
    if (this.#said.has(kind)) return undefined;
    this.#said.set(kind, text);
    return text;
  }
}
