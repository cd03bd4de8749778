/**
 * Numbers of the pages that cheap commands print: `npm run docs:numbers` runs the commands and ends with status 1 where a
 * page says something else than what was measured, beyond the interval that this file has for each number.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { BUILT_IN } from '../env-server/environments/registry.ts';
import { startEnvServer } from '../trainer/commands/processes/env-server-process.ts';
import { type EnvironmentMeasurement, measure } from './generator/measure.ts';

const ROOT = join(import.meta.dirname, '..');
const MEASURED = 'docs/generator/measured.json';
/** They need a program on the machine, or minutes. */
const NOT_PLAYED = new Set(['DeepCoder-v0', 'Lean-v0', 'Lean-v1', 'Game2048-v0']);
const FIVE = 5;

/** Numbers on a page and where the output of their command has them, as groups in the same order. */
export interface WrittenNumbers {
  readonly page: string;
  readonly written: RegExp;
  readonly printed: RegExp;
  /** The interval around each measured number: `by` to both sides, or from 1/`times` of it to `times` as much. */
  readonly interval: { readonly by: number } | { readonly times: number };
}

interface Command {
  /** Arguments of `node`; `SERVER` and `FOLDER` are replaced by an environment server and a temporary folder. */
  readonly args: readonly string[];
  readonly numbers: readonly WrittenNumbers[];
}

const TRAINER = 'trainer/main.ts';
const PERFORMANCE = 'docs/reference/performance.md';
const LORA = 'docs/how-to/lora.md';
const BASE = 'policy.init=FOLDER/base/checkpoints/step-000000/policy';
const ON_SERVER = ['run.folder=FOLDER', 'servers=[{url: "SERVER"}]'];
const optimal = /^optimal +FrozenLake +reference +([\d.]+) /m;
const random = /^random +FrozenLake +reference +([\d.]+) /m;

/** In this order: later ones read the folders of earlier ones. */
const COMMANDS: readonly Command[] = [
  {
    args: [TRAINER, 'train', 'configs/quickstart.yaml', '--dry-run', ...ON_SERVER],
    numbers: [
      {
        page: 'README.md',
        written: /language model of about ([\d,]+) weights/,
        printed: /^# policy: (\d+) parameters/m,
        interval: { times: 1.1 },
      },
    ],
  },
  {
    args: [
      TRAINER,
      'evaluate',
      'configs/quickstart.yaml',
      '--policy',
      'optimal',
      '--policy',
      'random',
      ...ON_SERVER,
    ],
    numbers: [
      {
        page: 'README.md',
        written: /best possible player crosses\s+([\d.]+) %/,
        printed: optimal,
        interval: { by: 2 },
      },
      {
        page: 'docs/reference/results.md',
        written: /a random player crosses ([\d.]+) %/,
        printed: random,
        interval: { by: 4 },
      },
    ],
  },
  {
    args: ['bench/start.ts', '--starts', '5'],
    numbers: [
      {
        page: PERFORMANCE,
        written: /of processor time, ([\d.]+) times that of `node:http` alone/,
        printed: /^processor time .* ms, ([\d.]+) times that of node:http alone$/m,
        interval: { times: 1.7 },
      },
      {
        page: PERFORMANCE,
        written: /`node:http` alone, (\d+) MB resident/,
        printed: /^resident +(\d+) /m,
        interval: { times: 1.15 },
      },
    ],
  },
  {
    args: ['bench/environments.ts', 'FrozenLake'],
    numbers: [
      {
        page: PERFORMANCE,
        written: /^\| `FrozenLake-v0` +\| ([\d,]+) +\| ([\d,]+) +\| ([\d,]+) +\|/m,
        printed: /^FrozenLake-v0 +([\d,]+) +([\d,]+) +([\d,]+) /m,
        interval: { times: 4 },
      },
    ],
  },
  {
    args: [TRAINER, 'sft', 'configs/bandit-nano.yaml', 'run.name=base', ...ON_SERVER],
    numbers: [
      {
        page: LORA,
        written: /success rises from ([\d.]+) % \(the base\)/,
        printed: /^Bandit: success ([\d.]+) %/m,
        interval: { by: 3 },
      },
    ],
  },
  {
    args: [
      TRAINER,
      'train',
      'configs/bandit-nano.yaml',
      'recipe=lora',
      BASE,
      'warm_start=null',
      'optimizer.learning_rate=5e-3',
      'training.steps=20',
      'run.name=lora',
      ...ON_SERVER,
    ],
    numbers: [
      {
        page: LORA,
        written: /% \(the base\) to ([\d.]+) %/,
        printed: /^Bandit: success [\d.]+ % → ([\d.]+) %/m,
        interval: { by: 4 },
      },
    ],
  },
];

/** Errors in the numbers of a page, by the output of their command. @param page text of the page */
export function wrongNumbers(
  { page: path, written, printed, interval }: WrittenNumbers,
  page: string,
  output: string,
): string[] {
  const onPage = written.exec(page);
  if (!onPage) return [`${path}: nothing on the page is like ${written}`];
  const measured = printed.exec(output);
  if (!measured) return [`${path}: the command printed nothing like ${printed}`];
  return onPage.slice(1).flatMap((text, i) => {
    const number = numberOf(text);
    const middle = numberOf(measured[i + 1]);
    const [low, high] =
      'by' in interval
        ? [middle - interval.by, middle + interval.by]
        : [middle / interval.times, middle * interval.times];
    if (number >= low && number <= high) return [];
    return [
      `${path} says ${text}; measured ${measured[i + 1]}, which allows ${shown(low)} to ${shown(high)}`,
    ];
  });
}

const numberOf = (text: string): number => Number(text.replaceAll(',', ''));
const shown = (value: number): string => String(Number(value.toPrecision(FIVE)));

/** Plays the reference policies again. @returns environments that did not come to what their pages say */
async function wrongReferences(): Promise<string[]> {
  const pages = JSON.parse(readFileSync(join(ROOT, MEASURED), 'utf8')) as {
    readonly [id: string]: EnvironmentMeasurement;
  };
  const wrong: string[] = [];
  for (const environment of BUILT_IN) {
    const { id } = environment.spec;
    if (NOT_PLAYED.has(id)) continue;
    const now = JSON.stringify(await measure(environment, pages[id].episodes));
    if (now !== JSON.stringify(pages[id]))
      wrong.push(`${MEASURED} has other numbers of ${id} than ${now}: npm run docs -- --measure ${id}`);
  }
  return wrong;
}

/** Runs every command. @returns what is wrong, a line for each number */
export async function checkNumbers(note: (line: string) => void): Promise<string[]> {
  note('reference policies');
  const wrong = await wrongReferences();
  const folder = mkdtempSync(join(tmpdir(), 'ragen-numbers-'));
  const server = await startEnvServer(['--port', '0']);
  try {
    for (const { args, numbers } of COMMANDS) {
      const filled = args.map(arg => arg.replaceAll('FOLDER', folder).replaceAll('SERVER', server.url));
      note(`node ${filled.join(' ')}`);
      const { stdout } = await promisify(execFile)(process.execPath, filled, {
        cwd: ROOT,
        maxBuffer: 1 << 24,
      });
      for (const number of numbers) {
        wrong.push(...wrongNumbers(number, readFileSync(join(ROOT, number.page), 'utf8'), stdout));
      }
    }
  } finally {
    server.child.stop();
    await server.child.ended;
    rmSync(folder, { recursive: true, force: true });
  }
  return wrong;
}

if (import.meta.main) {
  const wrong = await checkNumbers(line => console.log(line));
  for (const line of wrong) console.error(line);
  console.log(wrong.length === 0 ? 'every number is within its interval' : `${wrong.length} numbers are not`);
  if (wrong.length > 0) process.exitCode = 1;
}
