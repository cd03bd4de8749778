import { createHash, generateKeyPairSync } from 'node:crypto';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { parse, stringify } from 'yaml';
import { configHash, type RunResult, signResult } from '../../shared/run-folder/signed-result.ts';
import { evaluate } from '../commands/evaluate/evaluate.ts';
import { serve } from '../rollout/server.test-data.ts';
import { tinySettings, trainTiny } from '../training/runs.test-data.ts';

type Writable<T> = { -readonly [K in keyof T]: Writable<T[K]> };
/** A line of a file of episodes. */
export type EpisodeLine = { [key: string]: unknown; turns: { [key: string]: unknown }[] };

/** An environment server, and a run with signed results of a policy and of random play, two attempts a level. */
export async function signedRun(t: Test) {
  const folder = t.testdir({ runs: {} });
  const before = process.env.XDG_CONFIG_HOME;
  process.env.XDG_CONFIG_HOME = join(folder, 'settings');
  t.teardown(() => {
    if (before === undefined) delete process.env.XDG_CONFIG_HOME;
    else process.env.XDG_CONFIG_HOME = before;
  });
  const [{ name: server }] = (await serve(t)).servers;
  const runs = join(folder, 'runs');
  const run = await trainTiny(tinySettings(server, runs, 'lake', { training: { steps: 0 } }));
  const silent = t.capture(console, 'log');
  const options = { policy: ['checkpoint', 'random'], attempts: 2, quiet: true, sign: 'Ada' };
  await evaluate(run.path, ['validation.episodes=8'], options);
  silent.restore();
  return { folder, runs, run, server };
}

/** The document of a run and its result. */
export function documentOf(path: string): { result: Writable<RunResult>; signature: string } {
  return JSON.parse(readFileSync(join(path, 'result.json'), 'utf8'));
}

/** A copy of a run under another name, changed and signed with another key. @returns its path */
export function forged(
  path: string,
  name: string,
  change: (result: Writable<RunResult>, episodes: EpisodeLine[][]) => void,
): string {
  const copy = join(path, '..', name);
  cpSync(path, copy, { recursive: true });
  const config = parse(readFileSync(join(copy, 'config.yaml'), 'utf8'));
  writeFileSync(join(copy, 'config.yaml'), stringify({ ...config, run: { ...config.run, name } }));
  const { result } = documentOf(path);
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  result.run = name;
  result.config_sha256 = configHash(config);
  result.author = { name: 'Eve', public_key: publicKey.export({ format: 'jwk' }).x! };
  const linesOf = (file: string) => readFileSync(join(copy, file), 'utf8').trimEnd().split('\n');
  const episodes = result.files.map(file => linesOf(file.path).map(line => JSON.parse(line) as EpisodeLine));
  // Differs from the file of others even where nothing else is changed.
  for (const [first] of episodes) first.server = name;
  change(result, episodes);
  result.files.forEach((file, i) => {
    const text = episodes[i].map(line => `${JSON.stringify(line)}\n`).join('');
    writeFileSync(join(copy, file.path), text);
    file.bytes = Buffer.byteLength(text);
    file.sha256 = createHash('sha256').update(text).digest('hex');
  });
  writeFileSync(join(copy, 'result.json'), JSON.stringify(signResult(result, privateKey)));
  return copy;
}
