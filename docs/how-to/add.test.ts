import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import t from 'tap';
import { operations } from '../../trainer/tensor/graph/graph.ts';

const ROOT = join(import.meta.dirname, '../..');
/** Files of the repository in the scratch copy. */
const COPIED = [
  'env-server',
  'trainer',
  'shared',
  'site',
  'openapi',
  'configs',
  'package.json',
  'tsconfig.json',
];

const PARTS = 'add-a-part.md';

/** An example of a page. */
interface Example {
  /** Page in this folder. */
  readonly page: string;
  /** The file that its example makes; its block follows the line that names it. */
  readonly file: string;
  /** The one line that registers it. */
  readonly registration?: {
    readonly file: string;
    /** Line that the page adds, and the line that precedes it. */
    readonly line: string;
    readonly after: string;
    readonly imported: string;
  };
}

const EXAMPLES: readonly Example[] = [
  {
    page: 'add-an-environment.md',
    file: 'env-server/environments/coin/coin.ts',
    registration: {
      file: 'env-server/environments/registry.ts',
      line: 'coin',
      after: 'export const BUILT_IN: readonly AnyEnvironment[] = [',
      imported: "import { coin } from './coin/coin.ts';",
    },
  },
  {
    page: PARTS,
    file: 'env-server/wrappers/reward-sign.ts',
    registration: {
      file: 'env-server/wrappers/wrap.ts',
      line: 'rewardSign',
      after: 'export const WRAPPERS: ReadonlyMap<string, Wrapper> = new Map(\n  [',
      imported: "import { rewardSign } from './reward-sign.ts';",
    },
  },
  {
    page: PARTS,
    file: 'env-server/transports/legacy/routes.ts',
    registration: {
      file: 'env-server/transports/compatible.ts',
      line: 'await addLegacyRoutes(app, dispatcher);',
      after: '): Promise<void> {',
      imported: "import { addLegacyRoutes } from './legacy/routes.ts';",
    },
  },
  {
    page: PARTS,
    file: 'trainer/algorithms/advantages/sign.ts',
    registration: {
      file: 'trainer/algorithms/advantages/registry.ts',
      line: 'sign',
      after: 'const ESTIMATORS = {',
      imported: "import { sign } from './sign.ts';",
    },
  },
  {
    page: PARTS,
    file: 'trainer/algorithms/losses/reinforce.ts',
    registration: {
      file: 'trainer/algorithms/losses/registry.ts',
      line: 'reinforce',
      after: 'const LOSSES: readonly PolicyLoss[] = [',
      imported: "import { reinforce } from './reinforce.ts';",
    },
  },
  {
    page: PARTS,
    file: 'trainer/algorithms/filters/above-mean.ts',
    registration: {
      file: 'trainer/algorithms/filters/registry.ts',
      line: 'above_mean: aboveMean',
      after: 'export const STRATEGIES = {',
      imported: "import { aboveMean } from './above-mean.ts';",
    },
  },
  { page: PARTS, file: 'configs/recipes/reinforce_rloo.yaml' },
];

/** Uses each new part as the programs do, and prints the outcome. */
const PROGRAM = `
import { createApp } from './env-server/app.ts';
import { checkEnvironment } from './env-server/environments/core/checker/checker.ts';
import { createRegistry } from './env-server/environments/registry.ts';
import { estimateAdvantages } from './trainer/algorithms/advantages/registry.ts';
import { selectGroups } from './trainer/data/filtering.ts';
import { policyLoss } from './trainer/algorithms/losses/registry.ts';
import { loadRunSettings } from './trainer/config/load.ts';
import { GraphBuilder } from './trainer/tensor/graph/graph.ts';
import { interpret } from './trainer/tensor/graph/interpreter.test-data.ts';

const report = await checkEnvironment(createRegistry().get('Coin-v0'), { episodes: 4, steps: 4 });
const { server } = await createApp({ logLevel: 'silent' });
const legacy = await server.inject({ method: 'POST', url: '/compat/legacy/new', payload: { env_id: 'Coin-v0', seed: 1 } });
const made = await server.inject({
  method: 'POST',
  url: '/v1/sessions',
  payload: { env_id: 'Sokoban-v0', seed: 1, wrappers: [{ name: 'reward_sign' }] },
});
const { session_id } = made.json();
const step = await server.inject({ method: 'POST', url: '/v1/sessions/' + session_id + '/step', payload: { action: 'Up' } });
await server.close();

const rewards = [3, 1, 2, 2].map(reward => ({ lossMask: [1], rewards: [reward], groupId: 0 }));
const filter = { strategy: 'above_mean', value: 1, order: 'largest', mass: 'linear', includeZero: true };
const g = new GraphBuilder();
const input = (name: string) => g.input(name, 'float32', [3]);
const losses = policyLoss('reinforce').tokenLosses(g, {
  logProbs: input('logProbs'), token: input, scalar: input, dualClip: false, sequenceSum: x => x,
});
g.output('losses', losses.losses);
const settings = loadRunSettings('configs/sokoban-nano.yaml', [
  'recipe=reinforce_rloo', 'algorithm.filter.strategy=above_mean', 'loss.policy=reinforce',
]);
const signed = loadRunSettings('configs/sokoban-nano.yaml', ['recipe=grpo', 'algorithm.advantage=sign']);
console.log(JSON.stringify({
  contract: report.passed,
  legacy: legacy.json(),
  reward: step.json().reward,
  sign: estimateAdvantages('sign', rewards).advantages.map(([value]) => value),
  kept: selectGroups([1, 5, 3], filter as Parameters<typeof selectGroups>[1]),
  losses: Array.from(interpret(g.build(), { logProbs: [-1, -2, -3], advantages: [1, 0, -1], oldLogProbs: [-1, -2, -3] }).losses),
  recipe: [settings.algorithm.advantage, settings.algorithm.filter.strategy, settings.loss.policy, signed.algorithm.advantage],
}));
`;

const readPage = (name: string): string => readFileSync(join(import.meta.dirname, name), 'utf8');

/** The block that follows the line with the file's name. */
function exampleOf({ page, file }: Example): string {
  const [, after] = readPage(page).split(`\n\`${file}\`:\n\n\`\`\``);
  if (after === undefined) throw new Error(`${page} shows no ${file}`);
  return after.slice(after.indexOf('\n') + 1, after.indexOf('\n```') + 1);
}

/** Leaves what is not new, nor registers it, to the check of the whole repository, which takes far longer. */
function leaveUnchecked(folder: string, checked: readonly string[]): void {
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    if (!name.endsWith('.ts') || name.endsWith('.d.ts') || checked.includes(name)) continue;
    const file = join(folder, name);
    writeFileSync(file, `// @ts-nocheck\n${readFileSync(file, 'utf8')}`);
  }
}

t.test('each example of the pages is one file and one line', { timeout: 900_000 }, async t => {
  const scratch = t.testdir();
  for (const name of COPIED) {
    cpSync(join(ROOT, name), join(scratch, name), {
      recursive: true,
      filter: file => !/\.test\.ts$|__pycache__/.test(file),
    });
  }
  symlinkSync(join(ROOT, 'node_modules'), join(scratch, 'node_modules'));
  const checked = ['program.ts'];
  for (const example of EXAMPLES) {
    const path = join(scratch, example.file);
    t.notOk(existsSync(path), `${example.file} is new`);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, exampleOf(example));
    if (example.file.endsWith('.ts')) checked.push(example.file);
    if (!example.registration) continue;
    const { file, line, after, imported } = example.registration;
    const text = readPage(example.page).replace(/\s+/g, ' ');
    t.ok(
      text.includes(`import it in \`${file}\` and add \`${line}\``) ||
        text.includes(`In \`${file}\`, import it and add \`${line}\``),
      `${example.page} says the line of ${example.file}`,
    );
    const source = readFileSync(join(scratch, file), 'utf8');
    t.equal(source.split(after).length, 2, `${file} has the place once`);
    const added = line.endsWith(';') ? line : `${line},`;
    writeFileSync(join(scratch, file), `${imported}\n${source.replace(after, `${after}\n${added}`)}`);
    checked.push(file);
  }
  writeFileSync(join(scratch, 'program.ts'), PROGRAM);

  await t.test('additions have types that fit', async t => {
    leaveUnchecked(scratch, checked);
    const { compilerOptions } = JSON.parse(readFileSync(join(ROOT, 'tsconfig.json'), 'utf8'));
    const { tsBuildInfoFile: _file, ...options } = { ...compilerOptions, incremental: false };
    writeFileSync(
      join(scratch, 'tsconfig.json'),
      JSON.stringify({
        compilerOptions: options,
        files: checked,
      }),
    );
    const compiler = join(ROOT, 'node_modules/typescript-native/bin/tsc');
    t.equal(spawnSync(process.execPath, [compiler], { cwd: scratch, encoding: 'utf8' }).stdout, '');
  });

  await t.test('the programs use it', async t => {
    const output = execFileSync(process.execPath, ['program.ts'], { cwd: scratch, encoding: 'utf8' });
    t.match(JSON.parse(output), {
      contract: true,
      legacy: { handle: String, text: 'The coin is in your hand.' },
      reward: -1,
      sign: [1, -1, 0, 0],
      kept: [1, 2],
      losses: [1, 0, -3],
      recipe: ['rloo', 'above_mean', 'reinforce', 'sign'],
    });
  });
});

t.test('the graph operation of the page is the one of the repository', async t => {
  const file = readFileSync(join(ROOT, 'trainer/tensor/graph/operations/elementwise.ts'), 'utf8');
  const [relu] = file.slice(file.indexOf('/** max(x, 0)')).split('\n\n');
  t.match(relu, 'export const relu = unary({');
  t.ok(readPage(PARTS).includes(`\`\`\`ts\n${relu.trimEnd()}\n\`\`\``));
  t.ok(operations.has('relu'), 'it needs no line in a table');
});
