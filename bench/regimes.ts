/**
 * Shows each regime of reasoning with reinforcement learning of our own: `npm run bench:regimes`. One policy learns to think before
 * it acts in FrozenLake, from a solver's games: the way to the goal, then four random words. From there three runs continue with
 * another reward each, and the trainer measures their thoughts as they learn. Compressed thoughts are taught: at this size no run
 * of a few minutes came to them. Writes docs/results/data/regimes.json, from which `npm run docs` draws the picture. Takes five
 * minutes of one core.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Random } from '../shared/random.ts';
import { ServerProcess } from './server-process.ts';

interface Message {
  readonly role: string;
  readonly content: string;
}

/** A run of reinforcement learning: what it pays for, and its settings. */
interface Arm {
  readonly name: string;
  /** The body of a function that makes a reward of `thought` and `way`, lists of words, and `success`. */
  readonly reward: string;
  readonly settings: readonly string[];
}

const FIRST = 'collapse_first_turn_sample';
const WORDS = ['Up', 'Down', 'Left', 'Right'];
const EPISODES = 1000;
const EPOCHS = 6;
const STEPS = 20;
const EVERY = 2;
const CONFIG = 'configs/quickstart.yaml';
const DATA = new URL('../docs/results/data/regimes.json', import.meta.url);
const SHARED = [
  'policy.context=256',
  'policy.value_head=false',
  'rollout.env_groups=16',
  'rollout.group_size=4',
  'rollout.think=true',
  'rollout.response_length=20',
  'algorithm.advantage=grpo',
  'rollout.format_penalty=-1', // the form is to last
  'optimizer.learning_rate=1e-3',
  'optimizer.warmup_iterations=3',
  'training.validate_first=false',
  'validation.episodes=16',
];
const ARMS: readonly Arm[] = [
  {
    name: 'success alone',
    reward: 'return success ? 1 : 0;',
    settings: [],
  },
  {
    name: 'eight words',
    reward: 'return -Math.abs(8 - thought.length) / 4;',
    settings: ['loss.entropy_coefficient=0.05', 'algorithm.entropy_on=all'],
  },
  {
    name: 'the word Up',
    reward: `return thought.filter(word => word === 'Up').length / 4 - Math.abs(4 - thought.length) / 4;`,
    settings: ['loss.entropy_coefficient=0'],
  },
];

/** The way from the player to the goal as the crow flies, a word a cell; a fact about the prompt. */
function way(grid: string): string[] {
  const rows = grid.replace(/^.*?<grid>/s, '').split('\n');
  const find = (symbol: string) => {
    const row = rows.findIndex(line => line.includes(symbol));
    return { row, column: row === -1 ? -1 : rows[row].indexOf(symbol) };
  };
  const [player, goal] = [find('P'), find('G')];
  if (player.row === -1 || goal.row === -1) return [];
  const [down, right] = [goal.row - player.row, goal.column - player.column];
  return [
    ...new Array<string>(Math.abs(down)).fill(down > 0 ? 'Down' : 'Up'),
    ...new Array<string>(Math.abs(right)).fill(right > 0 ? 'Right' : 'Left'),
  ];
}

/** The module of a reward: it reads the first thought of an episode. */
function rewardModule(body: string): string {
  return `${way.toString()}
function pay(thought, way, success) {${body}
}
export function reward({ success, turns }) {
  const [{ state, response }] = turns;
  const thought = /<think>(.*?)<\\/think>/s.exec(response)?.[1] ?? '';
  return { reward: pay(thought.match(/[A-Z][a-z]+/g) ?? [], way(state), success) };
}
`;
}

function trainer(...args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['trainer/main.ts', ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.on('data', chunk => {
      text += chunk;
    });
    child.on('exit', code =>
      code === 0 ? resolve(text) : reject(new Error(`trainer ${args[0]} ended with ${code}`)),
    );
  });
}

const folder = mkdtempSync(join(tmpdir(), 'ragen-regimes-'));
const server = new ServerProcess([]);
try {
  await server.start();
  const place = [
    `servers=${JSON.stringify([{ url: server.origin }])}`,
    `run.folder=${JSON.stringify(folder)}`,
  ];
  const solved = await solvedGames(place);
  const start = join(await taught(place, solved, 'diverse', diverse), 'policy');
  const rows = [];
  for (const [i, { name, reward, settings }] of ARMS.entries()) {
    const file = join(folder, `reward-${i}.mjs`);
    writeFileSync(file, rewardModule(reward));
    await trainer(
      'train',
      CONFIG,
      ...place,
      ...SHARED,
      `run.name=arm-${i}`,
      `policy.init=${JSON.stringify(start)}`,
      'warm_start=null',
      `rollout.reward={file: ${JSON.stringify(file)}, mode: replace}`,
      `training.steps=${STEPS}`,
      'training.validate_every=0',
      `diagnostics.collapse.every=${EVERY}`,
      ...settings,
      '--quiet',
    );
    rows.push({ name, path: pathOf(join(folder, `arm-${i}`)) });
    console.log(JSON.stringify(rows.at(-1)));
  }
  const compressed = await taught(place, solved, 'compressed', way);
  rows.push({ name: 'the way, taught', path: [await measured(compressed)] });
  mkdirSync(new URL('.', DATA), { recursive: true });
  writeFileSync(
    DATA,
    `${JSON.stringify({ title: 'Thoughts of small policies by what they are paid for, FrozenLake', rows }, null, 2)}\n`,
  );
} finally {
  await server.end('SIGTERM');
  rmSync(folder, { recursive: true, force: true });
}

/** Conversations of a solver that thinks nothing. @returns a file */
async function solvedGames(place: readonly string[]): Promise<string> {
  const file = join(folder, 'solved.jsonl');
  const player = ['rollout.think=true', 'warm_start.policy=optimal', `warm_start.episodes=${EPISODES}`];
  await trainer('demonstrations', CONFIG, ...place, ...player, '--out', file);
  return file;
}

type Thinker = (grid: string, random: Random) => readonly string[];

/** The way to the goal, then four random words. */
function diverse(grid: string, random: Random): readonly string[] {
  return [...way(grid), ...Array.from({ length: 4 }, () => random.choice(WORDS))];
}

/** Teaches a policy to think. @returns its checkpoint */
async function taught(
  place: readonly string[],
  solved: string,
  name: string,
  think: Thinker,
): Promise<string> {
  const random = Random.fromSeed(1);
  const lines = readFileSync(solved, 'utf8')
    .trim()
    .split('\n')
    .map(line => {
      const { messages } = JSON.parse(line) as { messages: Message[] };
      const thought = (i: number) => think(messages[i - 1].content, random).join('');
      const thinking = messages.map(({ role, content }, i) => ({
        role,
        content: role === 'assistant' ? content.replace('<think>', `<think>${thought(i)}`) : content,
      }));
      return JSON.stringify({ messages: thinking });
    });
  const data = join(folder, 'thoughts.jsonl');
  writeFileSync(data, `${lines.join('\n')}\n`);
  const learn = [`run.name=${name}`, 'warm_start.learn=everything', `warm_start.epochs=${EPOCHS}`];
  await trainer('sft', CONFIG, ...place, ...SHARED, ...learn, '--data', data, '--quiet');
  const checkpoints = join(folder, name, 'checkpoints');
  return join(checkpoints, readdirSync(checkpoints).sort().at(-1)!);
}

/** Entropy and information of a checkpoint's thoughts. */
async function measured(checkpoint: string) {
  const { step, metrics } = JSON.parse(await trainer('diagnose', checkpoint, '--json', '--quiet')) as {
    step: number;
    metrics: { [name: string]: number };
  };
  return placeOf({ ...metrics, step });
}

/** Entropy and information of a run's thoughts at each measurement. */
function pathOf(run: string) {
  return readFileSync(join(run, 'metrics.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map(line => JSON.parse(line) as { [name: string]: number })
    .filter(row => row[`${FIRST}/mi_seq_share`] !== undefined)
    .map(placeOf);
}

function placeOf(row: { readonly [name: string]: number }) {
  return {
    step: row.step,
    mi_share: row[`${FIRST}/mi_seq_share`],
    entropy: row[`${FIRST}/conditional_entropy_est`],
    valid: row['collapse/valid_thinking_rate'],
    regime: row['collapse/regime'] ?? null,
  };
}
