import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { freePort } from '../../../test/free-port.test-data.ts';
import { loadTokenizer } from '../../models/tokenizer/load.ts';
import { settingsWith } from '../policies.test-data.ts';
import { readTinkerCheckpoint } from './checkpoint.ts';
import { playTinker, tinkerOptions } from './tinker.test-data.ts';
import { TinkerPolicy } from './tinker-policy.ts';

/** SkyRL 0.4.0 with JAX on the processor: a program that was not written for this client. */
const PYTHON = process.env.RAGEN_SKYRL;
const skip =
  PYTHON === undefined &&
  'needs RAGEN_SKYRL, a python with skyrl 0.4.0 and JAX: npm run test:parts installs it';
const MODEL = fileURLToPath(new URL('../../../test/golden/models/qwen3-tiny', import.meta.url));
const BACKEND = {
  max_lora_adapters: 6,
  max_lora_rank: 4,
  train_micro_batch_size: 4,
  sample_max_num_sequences: 8,
};

/** Stand-ins for packages that SkyRL imports and does not use for text. */
const STAND_INS = {
  torch: { '__init__.py': 'class Tensor: ...\n' },
  peft: {
    '__init__.py': [
      'import json, pathlib',
      'class LoraConfig:',
      '    def __init__(self, **fields):',
      '        self.__dict__.update(fields)',
      '    def save_pretrained(self, folder):',
      '        path = pathlib.Path(folder)',
      '        path.mkdir(parents=True, exist_ok=True)',
      '        (path / "adapter_config.json").write_text(json.dumps(self.__dict__, default=str))',
      '',
    ].join('\n'),
  },
};

/** Starts the server; it reads the command line of its parent, which must be `uv run`. */
async function skyrl(t: Test, folder: string): Promise<string> {
  const port = await freePort();
  const options = {
    'base-model': MODEL,
    backend: 'jax',
    host: '127.0.0.1',
    port: String(port),
    'checkpoints-base': join(folder, 'checkpoints'),
    'database-url': `sqlite:///${join(folder, 'skyrl.db')}`,
    'backend-config': JSON.stringify(BACKEND),
  };
  const args = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  const child = spawn(PYTHON!, ['-m', 'uv', 'run', '--no-project', '-m', 'skyrl.tinker.api', ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
    detached: true,
    env: {
      ...process.env,
      PYTHONPATH: join(folder, 'modules'),
      JAX_PLATFORMS: 'cpu',
      HF_HUB_OFFLINE: '1',
    },
  });
  let said = '';
  child.stderr.on('data', data => {
    said = `${said}${data}`.slice(-4000);
  });
  const ended = new Promise(resolve => child.once('exit', resolve));
  t.teardown(async () => {
    if (child.exitCode === null) process.kill(-child.pid!, 'SIGKILL');
    await ended;
  });
  const url = `http://127.0.0.1:${port}`;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`SkyRL ended: ${said}`);
    if (await fetch(`${url}/api/v1/healthz`).catch(() => null)) return url;
    await sleep(250);
  }
}

t.test(
  'the client trains at SkyRL on JAX: probe, losses with both means canceled, newest sampler, resume',
  { skip },
  async t => {
    const folder = t.testdir({ modules: STAND_INS, checkpoints: {} });
    const url = await skyrl(t, folder);
    const { vocabularySize } = await loadTokenizer(MODEL);
    const options = tinkerOptions(url, { server: 'skyrl-jax', baseModel: MODEL, vocabularySize, retry: {} });
    await t.rejects(
      TinkerPolicy.open({ ...options, server: 'skyrl' }),
      /the server averages over datums.*Set it to skyrl-jax/,
    );
    const policy = await TinkerPolicy.open(options);
    const gap = async (sequences: Awaited<ReturnType<typeof playTinker>>) => {
      const scores = await policy.score(sequences);
      return Math.max(
        ...sequences.flatMap(({ logProbs }, i) =>
          Array.from(logProbs, (x, k) => Math.abs(x - scores[i].logProbs[k])),
        ),
      );
    };
    const sequences = await playTinker(policy, 4);
    t.ok((await gap(sequences)) < 1e-4, 'samples are scored as they were sampled');
    const [base] = await policy.scoreReference(sequences);
    t.ok(Array.from(base.logProbs, (x, k) => Math.abs(x - sequences[0].logProbs[k])).every(x => x < 1e-4));

    // With log-probabilities of the behavior, PPO's gradient is that of its surrogate by log-probabilities: both routes agree.
    const loss = { policy: 'ppo', entropyCoefficient: 0, aggregation: 'token_mean' } as const;
    const still = { learningRate: 0, clipNorm: 0, weightDecay: 0 };
    const own = sequences.map(sequence => ({ ...sequence, logProbs: sequence.logProbs.slice() }));
    const native = await policy.update({ sequences: own }, settingsWith({ ...loss, dualClip: 0 }, still));
    const custom = await policy.update({ sequences: own }, settingsWith({ ...loss, dualClip: 100 }, still));
    const norm = native['actor/grad_norm'];
    t.ok(
      norm > 0 && Math.abs(norm - custom['actor/grad_norm']) < 1e-4 * norm,
      'gradient norms of both routes',
    );
    const half = own.map(sequence => ({ ...sequence, advantages: sequence.advantages.map(x => x / 2) }));
    const halved = await policy.update({ sequences: half }, settingsWith({ ...loss, dualClip: 0 }, still));
    t.ok(
      Math.abs(halved['actor/grad_norm'] - norm / 2) < 1e-4 * norm,
      'sizes of advantages matter, unlike those of weights',
    );

    const rewarded = own.map(sequence => ({
      ...sequence,
      advantages: new Float32Array(sequence.tokenIds.length).fill(1),
    }));
    const learning = settingsWith(
      { policy: 'cross_entropy', entropyCoefficient: 0 },
      { learningRate: 0.03, clipNorm: 0, weightDecay: 0 },
    );
    const losses: number[] = [];
    for (let step = 0; step < 3; step++)
      losses.push((await policy.update({ sequences: rewarded }, learning))['sft/loss']);
    t.ok(losses[2] < losses[0] - 0.1, `the loss falls: ${losses}`);
    await policy.sampler.publish();
    t.ok((await gap(await playTinker(policy, 4))) < 1e-4, 'the newest sampler has the newest weights');

    await policy.save(join(folder, 'run'));
    const { path } = (await readTinkerCheckpoint(join(folder, 'run')))!;
    t.match(path, /^tinker:\/\/[^/]+\/weights\/v000006$/, 'as it is expected before the reply');
    const before = await policy.score(sequences);
    await policy.close();
    const resumed = await TinkerPolicy.open({ ...options, folder: join(folder, 'run') });
    const after = await resumed.score(sequences);
    t.equal(resumed.version, 6);
    t.ok(
      after.every(({ logProbs }, i) => logProbs.every((x, k) => Math.abs(x - before[i].logProbs[k]) < 1e-4)),
    );
    await resumed.close();
  },
);
