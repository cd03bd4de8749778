import { createHash } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { VERSION } from '../../../shared/program.ts';
import { configHash, parseSignedResult } from '../../../shared/run-folder/signed-result.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { readJsonLines } from '../../tracking/jsonlines.ts';
import { openRunFolder } from '../../training/run-folder/run-folder.ts';
import { tinySettings, trainTiny } from '../../training/runs.test-data.ts';
import { evaluate } from './evaluate.ts';

const MAX_MS = 900_000;

t.test(
  'an evaluation of a run is signed with all that it takes to check it',
  { timeout: MAX_MS },
  async t => {
    const folder = t.testdir();
    const before = process.env.XDG_CONFIG_HOME;
    process.env.XDG_CONFIG_HOME = join(folder, 'settings');
    t.teardown(() => {
      if (before === undefined) delete process.env.XDG_CONFIG_HOME;
      else process.env.XDG_CONFIG_HOME = before;
    });
    const [server] = (await serve(t)).servers;
    const run = await trainTiny(tinySettings(server.name, folder, 'run', { training: { steps: 0 } }));
    const printed = t.capture(console, 'log');
    const options = { policy: ['checkpoint', 'random'], attempts: 2, json: true, quiet: true };
    t.equal(await evaluate(run.path, ['validation.episodes=6'], { ...options, sign: 'Ada' }), 0);
    const rows = JSON.parse(printed()[0].args[0]);

    const { result } = parseSignedResult(readFileSync(run.result, 'utf8'));
    const { settings } = openRunFolder(run.path);
    t.match(result, {
      run: 'run',
      version: VERSION,
      author: { name: 'Ada' },
      command: `evaluate ${run.path} validation.episodes=6 --policy checkpoint --policy random --attempts 2`,
      config_sha256: configHash(settings),
    });
    const environment = { env_id: 'FrozenLake-v0', max_turns: 3, program: false };
    const seeds = (attempts: number) => ({ first: settings.validation.seed, levels: 6, attempts });
    t.match(result.results, [
      { policy: 'checkpoint', mode: 'greedy', step: 0, environment, seeds: seeds(1) },
      { policy: 'checkpoint', mode: 'temperature 0.5', weights_sha256: /^[0-9a-f]{64}$/, seeds: seeds(2) },
      { policy: 'random', mode: 'reference', step: undefined, weights_sha256: undefined, seeds: seeds(2) },
    ]);
    t.same(
      result.results.map(({ success, success_low, success_high }) => [success, success_low, success_high]),
      rows.map((row: (typeof result.results)[0]) => [row.success, row.success_low, row.success_high]),
    );
    t.same(
      result.results.map(one => readJsonLines(join(run.path, one.episodes)).length),
      [6, 12, 12],
    );
    for (const { path, bytes, sha256 } of result.files) {
      const content = readFileSync(join(run.path, path));
      t.same([content.length, createHash('sha256').update(content).digest('hex')], [bytes, sha256]);
    }
    const key = join(folder, 'settings/ragen/signing-key.pem');
    t.equal(statSync(key).mode & 0o777, 0o600);
    t.notMatch(readFileSync(run.result, 'utf8'), /PRIVATE/);
  },
);

t.test('results that others could not check are not signed', { timeout: MAX_MS }, async t => {
  const folder = t.testdir();
  const [server] = (await serve(t)).servers;
  const run = await trainTiny(tinySettings(server.name, folder, 'run', { training: { steps: 0 } }));
  const options = { policy: ['random'], json: true, quiet: true };
  await t.rejects(evaluate(run.config, [], { ...options, sign: 'Ada' }), /--sign takes the folder of a run/);
  await t.rejects(
    evaluate(run.path, [], { ...options, sign: 'A\nda' }),
    /the name of an author has 1 to 100/,
  );
  t.notOk(existsSync(run.result));
});
