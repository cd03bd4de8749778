/**
 * Shows each regime of reasoning with policies of our own: `npm run bench:regimes`. Four policies learn to think before they act
 * in FrozenLake, each from the same solver's conversations with thoughts of another kind, and are measured by `diagnose`. Writes
 * docs/results/data/regimes.json, from which `npm run docs` draws the picture. Takes minutes on two cores.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Random } from '../shared/random.ts';
import { ServerProcess } from './server-process.ts';

interface Message {
  readonly role: string;
  readonly content: string;
}

const FIRST = 'collapse_first_turn_sample';
const WORDS = ['Up', 'Down', 'Left', 'Right'];
const EPISODES = 1500;
const MEASURED = [
  'rollout.env_groups=32',
  'rollout.group_size=4',
  'rollout.think=true',
  'rollout.response_length=16',
];
const DATA = new URL('../docs/results/data/regimes.json', import.meta.url);

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

/** What each policy is taught to think. */
const TEACHERS: { readonly [name: string]: (grid: string, random: Random) => string[] } = {
  'the way, in words that tell nothing else': way,
  'the way, then four random words': (grid, random) => [...way(grid), ...noise(random)],
  'four random words': (_, random) => noise(random),
  'always the same four words': () => ['Up', 'Up', 'Up', 'Up'],
};

function noise(random: Random): string[] {
  return Array.from({ length: 4 }, () => random.choice(WORDS));
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
  const config = 'configs/quickstart.yaml';
  const solved = join(folder, 'solved.jsonl');
  const player = ['rollout.think=true', 'warm_start.policy=optimal', `warm_start.episodes=${EPISODES}`];
  await trainer('demonstrations', config, ...place, ...player, '--out', solved);
  const conversations = readFileSync(solved, 'utf8')
    .trim()
    .split('\n')
    .map(line => (JSON.parse(line) as { messages: Message[] }).messages);
  const rows = [];
  for (const [name, think] of Object.entries(TEACHERS)) {
    const random = Random.fromSeed(1);
    const file = join(folder, 'thoughts.jsonl');
    const lines = conversations.map(messages =>
      JSON.stringify({
        messages: messages.map(({ role, content }, i) => ({
          role,
          content:
            role === 'assistant'
              ? content.replace('<think>', `<think>${think(messages[i - 1].content, random).join('')}`)
              : content,
        })),
      }),
    );
    writeFileSync(file, `${lines.join('\n')}\n`);
    const run = `run.name=policy-${rows.length}`;
    const learn = [
      'policy.context=256',
      'warm_start.learn=everything',
      'warm_start.epochs=6',
      'training.validate_first=false',
    ];
    await trainer(
      'sft',
      config,
      ...place,
      ...MEASURED,
      ...learn,
      'algorithm.advantage=grpo',
      'policy.value_head=false',
      run,
      '--data',
      file,
      '--quiet',
    );
    rows.push({ name, ...(await measured(join(folder, `policy-${rows.length}`))) });
    console.log(rows.at(-1));
  }
  mkdirSync(new URL('.', DATA), { recursive: true });
  writeFileSync(
    DATA,
    `${JSON.stringify({ title: 'Thoughts of four small policies in FrozenLake', rows }, null, 1)}\n`,
  );
} finally {
  await server.end('SIGTERM');
  rmSync(folder, { recursive: true, force: true });
}

function point(metrics: { readonly [name: string]: number }) {
  return {
    mi_share: metrics[`${FIRST}/mi_seq_share`],
    entropy: metrics[`${FIRST}/conditional_entropy_est`],
  };
}

async function measured(run: string) {
  const { metrics } = JSON.parse(await trainer('diagnose', run, '--json', '--quiet')) as {
    metrics: { [name: string]: number };
  };
  return { ...point(metrics), valid: metrics['collapse/valid_thinking_rate'] };
}
