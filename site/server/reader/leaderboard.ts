import { readFile } from 'node:fs/promises';
import { RUN_FILES } from '../../../shared/run-folder/run-files.ts';
import { parseYaml } from '../../../shared/yaml.ts';
import { object } from '../../compute/episode-record.ts';
import { presetText } from '../../compute/settings-text.ts';
import { type FoundRun, mapped, namesIn, type RunFolders, readRunJson } from './run-folders.ts';
import type { RunRow, RunsTable } from './runs-table.ts';

const MAX_BYTES = 4 * 1024 * 1024;
const EVALUATION_NAME = /^[\w.-]+\.json$/;
/** Evaluations of one run that are read. */
const MAX_EVALUATIONS = 100;

/** One result; shares from 0 to 1, null where it is not known. */
export interface LeaderboardRow {
  readonly env_id: string;
  /** The preset or the changed keys of the configuration; empty for the default. */
  readonly preset: string;
  readonly policy: string;
  /** Weights. */
  readonly size: number | null;
  readonly success: number;
  readonly low: number | null;
  readonly high: number | null;
  readonly pass_at: { readonly [k: string]: number } | null;
  readonly episodes: number | null;
  /** Iterations, sampled tokens and seconds of training. */
  readonly steps: number | null;
  readonly tokens: number | null;
  readonly seconds: number | null;
  readonly date: string;
  readonly command: string;
  /** Address of a published figure; empty for our own runs. */
  readonly source: string;
  /** Id of the run; absent for published figures. */
  readonly run?: string;
}

/** Every result under a folder of runs, and published ones. */
export class Leaderboard {
  readonly #folders: RunFolders;
  readonly #table: RunsTable;
  readonly #published: string | undefined;

  /** @param published YAML or JSON file: a list of {@link LeaderboardRow}s, all but `env_id`, `policy`, `success`, `source` optional */
  constructor(folders: RunFolders, table: RunsTable, published: string | undefined) {
    this.#folders = folders;
    this.#table = table;
    this.#published = published;
  }

  /** @throws Error when the file of published figures is wrong */
  async rows(): Promise<LeaderboardRow[]> {
    const runs = [...(await this.#folders.list()).values()];
    const ours = await mapped(runs, async run => {
      const row = await this.#table.row(run);
      return [...validationRows(row), ...(await this.#evaluations(run, row))];
    });
    const published = this.#published === undefined ? [] : await readPublished(this.#published);
    return [...ours.flat(), ...published].sort(
      (a, b) => a.env_id.localeCompare(b.env_id) || a.preset.localeCompare(b.preset) || b.success - a.success,
    );
  }

  async #evaluations(run: FoundRun, row: RunRow): Promise<LeaderboardRow[]> {
    const names = await namesIn(run, RUN_FILES.evaluations, EVALUATION_NAME);
    const documents = await mapped(names.slice(-MAX_EVALUATIONS), name =>
      readRunJson(run, MAX_BYTES, RUN_FILES.evaluations, name),
    );
    return documents.flatMap(document => evaluationRows(document, row));
  }
}

/** Numbers and texts of a result in a file; what is missing or of the wrong type counts as nothing. */
function known(value: Value) {
  const text = (name: string) => String(value[name] ?? '');
  const { pass_at } = value;
  return {
    ...{ size: number(value.size), low: number(value.low), high: number(value.high) },
    pass_at: pass_at ? (object(pass_at) as LeaderboardRow['pass_at']) : null,
    ...{ episodes: number(value.episodes), steps: number(value.steps), tokens: number(value.tokens) },
    ...{ seconds: number(value.seconds), date: text('date'), command: text('command') },
  };
}

/** The last validation of a run, where it has one environment. */
function validationRows({ run, validations, seconds, updated, id }: RunRow): LeaderboardRow[] {
  const last = validations.at(-1);
  const [tag, ...others] = run.tags;
  if (!last || !tag || others.length > 0) return [];
  return [
    {
      ...known({ ...last, size: run.parameters, steps: last.step, seconds }),
      env_id: tag.env_id,
      preset: presetText(tag.config),
      policy: `${run.name}, step ${last.step}`,
      success: last.success,
      date: new Date(updated).toISOString(),
      command: 'validation during training',
      source: '',
      run: id,
    },
  ];
}

/** @param document an `evaluations/*.json` of the command `evaluate` */
function evaluationRows(document: unknown, { run, id }: RunRow): LeaderboardRow[] {
  const value = object(document);
  const rows = Array.isArray(value.rows) ? value.rows : [];
  return rows.flatMap(item => {
    const one = object(item);
    const tag = run.tags.find(({ tag }) => tag === one.tag);
    if (!tag || typeof one.success !== 'number') return [];
    // Earlier versions wrote the training of the newest checkpoint for all policies.
    const trained = object(one.policy === 'checkpoint' ? (one.trained ?? value.trained) : one.trained);
    const own = number(trained.step) !== null;
    const { step: steps, sampled_tokens: tokens, seconds } = trained;
    const { date, command } = value;
    const { success_low: low, success_high: high, pass_at, episodes } = one;
    return [
      {
        ...known({
          size: own && run.parameters,
          low,
          high,
          pass_at,
          episodes,
          steps,
          tokens,
          seconds,
          date,
          command,
        }),
        env_id: tag.env_id,
        preset: presetText(tag.config),
        policy: `${own ? `${run.name}, ` : ''}${String(one.policy)} (${String(one.mode)})`,
        success: one.success,
        source: '',
        run: id,
      },
    ];
  });
}

/** @throws Error naming the entry and key that is wrong */
async function readPublished(file: string): Promise<LeaderboardRow[]> {
  const entries: unknown = parseYaml(await readFile(file, 'utf8'));
  if (!Array.isArray(entries)) throw new Error(`${file}: a list of results is wanted`);
  return entries.map((entry, i) => {
    const given = object(entry);
    const [env_id, policy, source] = ['env_id', 'policy', 'source'].map(key => {
      const text = given[key];
      if (typeof text === 'string' && text !== '') return text;
      throw new Error(`${file}: entry ${i + 1} lacks \`${key}\`, a text`);
    });
    const { success, preset = '' } = given;
    if (typeof success !== 'number' || !(success >= 0 && success <= 1)) {
      throw new Error(`${file}: \`success\` of entry ${i + 1} is a share from 0 to 1`);
    }
    return { ...known(given), env_id, preset: String(preset ?? ''), policy, success, source };
  });
}

type Value = { readonly [key: string]: unknown };

const number = (value: unknown): number | null => (typeof value === 'number' ? value : null);
