import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Episode } from '../rollout/episode.ts';
import { readJsonLines } from './jsonlines.ts';
import { readRecorded, TrajectoryWriter } from './trajectories.ts';

const episodeOf = (...ids: readonly number[]): Episode => ({
  episodeId: 'e',
  environmentId: 'FrozenLake-v0',
  tag: 'Lake',
  groupId: 0,
  seed: 1,
  server: 'http://s',
  turns: [],
  success: false,
  terminated: true,
  finalState: '',
  tokenIds: Int32Array.from(ids),
  lossMask: new Uint8Array(ids.length),
  logProbs: new Float32Array(ids.length),
  versions: new Int32Array(ids.length),
});

t.test('token texts are written once, and once more where a full disk cut their line', async t => {
  const folder = t.testdir();
  const run = { trajectories: folder, tokens: join(folder, 'tokens.jsonl') };
  const open = () => new TrajectoryWriter(run, ids => `text ${ids[0]}`);
  writeFileSync(run.tokens, '[1,"text 1"]\n[2,"te');
  open().write('train', 1, [episodeOf(1, 3)]);
  open().write('train', 2, [episodeOf(1, 2, 3)]);
  t.same(readJsonLines(run.tokens), [
    [1, 'text 1'],
    [3, 'text 3'],
    [2, 'text 2'],
  ]);
});

t.test(
  'likeliest tokens and the reference are kept with sampled tokens, with the texts of all of them',
  async t => {
    const folder = t.testdir();
    const run = { trajectories: folder, tokens: join(folder, 'tokens.jsonl') };
    const top = { logProb: -0.5, tokenIds: Int32Array.of(2, 9), logProbs: Float32Array.of(-0.5, -1.23456) };
    const episode = { ...episodeOf(1, 2), lossMask: Uint8Array.of(0, 1), top: new Map([[1, top]]) };
    const notes = { group: () => undefined, tokens: () => ({ reference: [-7, -0.25] }) };
    const file = new TrajectoryWriter(run, ids => `text ${ids[0]}`).write('train', 1, [episode], notes);
    const [{ samples }] = readJsonLines(file) as { samples: Record<string, unknown>[] }[];
    t.match(samples, [{ top_logprobs: [0, [2, -0.5, 9, -1.2346]], reference_log_probs: [0, -0.25] }]);
    t.same(readJsonLines(run.tokens), [
      [1, 'text 1'],
      [2, 'text 2'],
      [9, 'text 9'],
    ]);
  },
);

t.test('a line that is not an episode is named with its file', t => {
  const trajectories = t.testdir();
  const whole = '{"turns":[],"samples":[]}\n';
  const wrong = [
    'null',
    '[]',
    '{"turns":null,"samples":[]}',
    '{"turns":[null],"samples":[]}',
    '{"turns":[]}',
  ];
  for (const line of wrong) {
    writeFileSync(join(trajectories, 'train-000001.jsonl'), `${whole}${line}\n`);
    t.throws(
      () => readRecorded({ trajectories }, 'train', 1),
      /train-000001\.jsonl:2 is not an episode: it must have lists of turns and samples/,
      line,
    );
  }
  writeFileSync(join(trajectories, 'train-000001.jsonl'), whole);
  t.equal(readRecorded({ trajectories }, 'train', 1).length, 1);
  t.end();
});
