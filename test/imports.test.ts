import t from 'tap';
import { type ImportGraph, importCircles, readImports } from './import-graph.test-data.ts';

/**
 * What each folder may import besides itself and its sub-folders, as the beginnings of paths. The longest name that begins a file's path is its
 * folder. Tests may import anything; folders that are not named here may, too.
 */
const RULES: Readonly<Record<string, readonly string[]>> = {
  shared: [],
  'site/boards': ['shared/json.ts', 'site/components'],
  'site/components': ['openapi/schema.d.ts', 'shared/json.ts'],
  'site/compute': ['shared/json.ts', 'shared/run-folder', 'shared/step-info.ts'],
  'site/player': [
    'openapi/schema.d.ts',
    'shared/text.ts',
    'shared/json.ts',
    'shared/scheduling/serial-queue.ts',
    'site/boards',
    'site/components',
  ],
  'site/playground': [
    'shared/text.ts',
    'shared/json.ts',
    'shared/scheduling/serial-queue.ts',
    'site/boards',
    'site/components',
    'site/player',
  ],
  'site/reference': ['shared/text.ts', 'site/components', 'site/playground/client'],
  'site/runs': [
    'shared/text.ts',
    'shared/json.ts',
    'shared/run-folder',
    'site/boards',
    'site/components',
    'site/compute',
    'site/player',
    'site/server',
  ],
  'site/server': ['shared', 'site/compute'],
  'env-server': ['env-server', 'shared', 'site/server', 'openapi/schema.d.ts'],
  'env-server/scheduling': ['shared/scheduling'],
  'env-server/environments': ['env-server/problems.ts', 'env-server/scheduling', 'shared'],
  'env-server/environments/core': ['env-server/problems.ts', 'env-server/scheduling', 'shared'],
  'env-server/wrappers': ['env-server/environments/core', 'env-server/problems.ts', 'shared'],
  'env-server/persistence': ['env-server/problems.ts', 'shared'],
  'env-server/store': ['env-server/persistence', 'env-server/problems.ts', 'shared'],
  'env-server/sessions': [
    'env-server/store',
    'env-server/scheduling',
    'env-server/environments',
    'env-server/persistence',
    'env-server/problems.ts',
    'env-server/wrappers',
    'shared',
  ],
  'env-server/custom': [
    'env-server/environments',
    'env-server/persistence',
    'env-server/problems.ts',
    'env-server/scheduling',
    'env-server/sessions',
    'env-server/wrappers',
    'shared',
  ],
  'env-server/operations': [
    'env-server/custom',
    'env-server/environments',
    'env-server/persistence',
    'env-server/problems.ts',
    'env-server/scheduling',
    'env-server/sessions',
    'env-server/wrappers',
    'shared',
  ],
  'env-server/stages': [
    'env-server/environments/core',
    'env-server/operations',
    'env-server/problems.ts',
    'env-server/scheduling',
    'env-server/sessions',
    'shared',
  ],
  'env-server/transports': [
    'env-server/custom',
    'env-server/environments',
    'env-server/operations',
    'env-server/persistence',
    'env-server/problems.ts',
    'env-server/scheduling',
    'env-server/sessions',
    'env-server/stages',
    'env-server/wrappers',
    'shared',
  ],
  trainer: ['trainer', 'shared'],
  'trainer/tensor/graph': ['shared'],
  'trainer/tensor/runtime': ['trainer/tensor', 'shared'],
  'trainer/tensor/runtime/onnx': ['trainer/tensor/graph', 'trainer/tensor/runtime/*', 'shared'],
  'trainer/tensor/runtime/wasm': ['trainer/tensor/graph', 'trainer/tensor/runtime/*', 'shared'],
  'trainer/tensor/runtime/webgpu': ['trainer/tensor/graph', 'trainer/tensor/runtime/*', 'shared'],
  'trainer/hub': ['shared'],
  'trainer/models': ['trainer/tensor', 'shared'],
  'trainer/generation': ['trainer/models', 'trainer/tensor', 'shared'],
  'trainer/algorithms': ['trainer/tensor/graph', 'shared'],
  'trainer/policy': [
    'trainer/algorithms',
    'trainer/client/retry.ts',
    'trainer/generation',
    'trainer/hub',
    'trainer/models',
    'trainer/tensor',
    'trainer/tinker',
    'shared',
  ],
  'trainer/prompts': ['trainer/generation', 'trainer/models', 'shared'],
  'trainer/client': ['openapi/schema.d.ts', 'shared'],
  'trainer/tinker': [],
  'trainer/serve': [
    'trainer/algorithms',
    'trainer/config',
    'trainer/generation',
    'trainer/models',
    'trainer/policy',
    'trainer/prompts',
    'trainer/tensor',
    'trainer/tinker',
    'trainer/training',
    'shared',
  ],
  'trainer/serve/openai': ['trainer/generation', 'trainer/models', 'shared'],
  'trainer/rollout': [
    'trainer/client',
    'trainer/generation',
    'trainer/models',
    'trainer/policy',
    'trainer/prompts',
    'shared',
  ],
  'trainer/gateway': [
    'trainer/client',
    'trainer/generation',
    'trainer/models',
    'trainer/prompts',
    'trainer/rollout',
    'trainer/serve/openai',
    'shared',
  ],
  'trainer/config': [
    'trainer/algorithms',
    'trainer/generation',
    'trainer/models',
    'trainer/policy',
    'trainer/prompts',
    'trainer/rollout',
    'trainer/tensor/runtime/*',
    'shared',
  ],
  'trainer/dashboard': ['shared', 'site/compute', 'site/server', 'site/runs/data'],
  'trainer/tracking': ['trainer/config', 'trainer/hub', 'trainer/rollout', 'shared'],
  'trainer/data': [
    'trainer/algorithms',
    'trainer/config',
    'trainer/models',
    'trainer/policy',
    'trainer/prompts',
    'trainer/rollout',
    'trainer/tracking',
    'shared',
  ],
  'trainer/diagnostics': [
    'trainer/algorithms',
    'trainer/config',
    'trainer/data',
    'trainer/policy',
    'trainer/rollout',
    'trainer/tracking',
    'shared',
  ],
  'trainer/training': [
    'trainer/algorithms',
    'trainer/client',
    'trainer/config',
    'trainer/data',
    'trainer/diagnostics',
    'trainer/gateway',
    'trainer/generation',
    'trainer/models',
    'trainer/policy',
    'trainer/prompts',
    'trainer/rollout',
    'trainer/tensor/runtime/*',
    'trainer/tracking',
    'shared',
  ],
};

const PROGRAMS = ['env-server', 'trainer', 'shared', 'site'];
/** Most files of a folder besides its tests and sub-folders. */
const MAX_FOLDER = 17;

const isTest = (file: string): boolean => /\.test(-data)?\.ts$/.test(file);

/** The longest key of the rules that the path begins with. */
function folderOf(file: string): string | undefined {
  return Object.keys(RULES)
    .filter(folder => file.startsWith(`${folder}/`))
    .sort((a, b) => b.length - a.length)[0];
}

/** `name/*` allows the files of a folder without its sub-folders. */
function allows(rule: string, target: string): boolean {
  if (rule.endsWith('/*')) return target.slice(0, target.lastIndexOf('/')) === rule.slice(0, -2);
  return target === rule || target.startsWith(`${rule}/`);
}

function brokenRules(graph: ImportGraph): string[] {
  const broken: string[] = [];
  for (const [file, targets] of graph) {
    const folder = folderOf(file);
    if (folder === undefined || isTest(file)) continue;
    for (const target of targets) {
      const allowed = [folder, ...RULES[folder]];
      if (allowed.some(rule => allows(rule, target))) continue;
      broken.push(`${file} imports ${target}; ${folder} may import ${allowed.join(', ')}`);
    }
  }
  return broken;
}

const graph = readImports();

t.test('every folder imports only the folders it is allowed to', async t => {
  t.ok(graph.size > 500, 'the files are found');
  t.same(brokenRules(graph), []);
});

t.test('product code does not import tests', async t => {
  const imported = [...graph].flatMap(([file, targets]) =>
    !PROGRAMS.includes(file.split('/')[0]) || isTest(file)
      ? []
      : targets.filter(isTest).map(target => `${file} imports ${target}`),
  );
  t.same(imported, []);
});

t.test('no files import each other in circles, types included', async t => {
  t.same(importCircles(graph), []);
});

t.test('a folder of the trainer holds about 15 files at most', async t => {
  const counts = new Map<string, number>();
  for (const file of graph.keys()) {
    if (isTest(file) || !file.startsWith('trainer/')) continue;
    const folder = file.slice(0, file.lastIndexOf('/'));
    counts.set(folder, (counts.get(folder) ?? 0) + 1);
  }
  t.same(
    [...counts].filter(([, count]) => count > MAX_FOLDER),
    [],
  );
});

t.test('a rule that is broken and a circle are found', async t => {
  const wrong = new Map([
    ['trainer/tensor/graph/a.ts', ['trainer/models/b.ts']],
    ['trainer/models/b.ts', ['trainer/tensor/graph/a.ts', 'trainer/models/c.ts']],
    ['trainer/models/c.ts', []],
    ['trainer/models/c.test.ts', ['trainer/training/d.ts']],
    [
      'trainer/tensor/runtime/onnx/e.ts',
      ['trainer/tensor/runtime/f.ts', 'trainer/tensor/runtime/webgpu/g.ts'],
    ],
  ]);
  t.same(importCircles(wrong), [['trainer/models/b.ts', 'trainer/tensor/graph/a.ts']]);
  t.match(brokenRules(wrong), [
    /^trainer\/tensor\/graph\/a\.ts imports trainer\/models\/b\.ts/,
    /^trainer\/tensor\/runtime\/onnx\/e\.ts imports trainer\/tensor\/runtime\/webgpu\/g\.ts/,
  ]);
});
