import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import {
  readDemonstrations,
  readWarmStart,
  removeWarmStart,
  saveDemonstrations,
  saveWarmStart,
  type WarmStartState,
} from './warm-start.ts';

const state = (updates: number): WarmStartState => ({
  updates,
  epochMetrics: [{ 'sft/loss': 0.1 + 0.2 }],
  demonstrations: 2,
  learnedTokens: 6,
  rows: [{ 'sft/episodes': 2 }],
  seconds: 1.5,
});
const policy = {
  async save(folder: string) {
    mkdirSync(folder);
    writeFileSync(join(folder, 'weights'), 'w');
  },
};

t.test('the newest progress replaces the previous one and is read back unchanged', async t => {
  const run = { warmStart: join(t.testdir(), 'warm-start') };
  t.equal(readWarmStart(run), undefined);
  await saveWarmStart(run, state(9), policy);
  await saveWarmStart(run, state(10), policy);
  t.same(readdirSync(run.warmStart), ['step-000010']);
  const kept = readWarmStart(run)!;
  t.same(kept.state, state(10));
  t.ok(existsSync(join(kept.policy, 'weights')));
  removeWarmStart(run);
  t.equal(readWarmStart(run), undefined);
});

t.test('progress leaves the previous policy when the new one cannot be written', async t => {
  const run = { warmStart: t.testdir() };
  await saveWarmStart(run, state(9), policy);
  const full = { save: () => Promise.reject(new Error('the disk is full')) };
  await t.rejects(saveWarmStart(run, state(10), full), /disk is full/);
  t.equal(readWarmStart(run)!.state.updates, 9);
  await saveWarmStart(run, state(10), policy);
  t.equal(readWarmStart(run)!.state.updates, 10);
});

t.test('progress in the format of another version is refused', async t => {
  const run = { warmStart: t.testdir({ 'step-000003': { 'warm-start.json': '{"format":7}' } }) };
  t.throws(() => readWarmStart(run), /step-000003 has format 7 of warm starts; this version reads 1/);
});

t.test('demonstrations are read back as played', async t => {
  const run = { warmStart: join(t.testdir(), 'warm-start') };
  const demonstrations = [
    { tokenIds: Int32Array.of(5, 70_000, 6), lossMask: Uint8Array.of(0, 1, 1) },
    { tokenIds: Int32Array.of(1), lossMask: Uint8Array.of(0) },
  ];
  saveDemonstrations(run, demonstrations);
  t.same(readDemonstrations(run), demonstrations);
  const [few, many] = [Int32Array.of(70_000), Int32Array.from({ length: 1000 }, (_, id) => id)];
  const masked = [0, 1, 2].map(first => ({
    ...demonstrations[0],
    allowed: new Map([
      [1, few],
      [2, first === 0 ? few : many],
    ]),
  }));
  saveDemonstrations(run, [...masked, demonstrations[1]]);
  t.same(readDemonstrations(run), [...masked, demonstrations[1]]);
  const text = readFileSync(join(run.warmStart, 'demonstrations.jsonl'), 'utf8');
  t.equal(text.split('998,999').length, 2, 'sets are written once');
});
