import t from 'tap';
import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { callOf } from './chat.ts';
import { FormatError } from './format.ts';
import { RowSplitter, TrajectoryImport } from './import.ts';
import {
  ATIF_DOCUMENT,
  jsonLines,
  TRL_ROWS,
  VERIFIERS_ROWS,
  VERIFIERS_TRACES,
  VERL_ROWS,
} from './samples.test-data.ts';

/** Reads the episodes of a file's text, given in pieces. */
function imported(text: string | Uint8Array, piece = 1 << 20) {
  const found: { step: number; episode: EpisodeRecord }[] = [];
  const rows = new TrajectoryImport((step, episode) => found.push({ step, episode }));
  const splitter = new RowSplitter((value, place) => rows.add(value, place));
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += piece) splitter.push(bytes.subarray(at, at + piece));
  const isCut = splitter.end();
  return { found, isCut, formats: rows.formats };
}

const refused = (text: string | Uint8Array): string => {
  try {
    imported(text);
  } catch (error) {
    if (error instanceof FormatError) return error.message;
    throw error;
  }
  return 'nothing was refused';
};

const textsOf = ({ turns }: EpisodeRecord) =>
  turns.map(({ state, llm_raw_response: said, action_names, actions }) => [
    state,
    said,
    action_names ?? actions,
  ]);

t.test('TRL: rewards of functions add up, tries of a prompt are a group', async t => {
  const { found, formats } = imported(jsonLines(TRL_ROWS));
  t.same(formats, ['TRL']);
  t.same(
    found.map(({ step, episode }) => [
      step,
      episode.group_id,
      episode.member,
      episode.return,
      episode.advantage,
    ]),
    [
      [10, 0, 0, 1.5, 0.7],
      [10, 0, 1, 0.5, -0.7],
      [20, 0, 0, 1, 0],
    ],
  );
  const [{ episode }] = found;
  t.match(episode, { success: null, seed: null, format: 'TRL', terminated: true });
  t.match(episode.turns, [
    { llm_raw_response: '5', reward: 1.5, rewards: { accuracy_reward: 1, format_reward: 0.5 } },
  ]);
  t.match(episode.turns[0].state, /What is 2 \+ 3\?/);
});

t.test('verl: ChatML in a response makes turns, `acc` says success, `gts` the expected answer', async t => {
  const { found, formats } = imported(jsonLines(VERL_ROWS));
  t.same(formats, ['verl']);
  t.match(found, [
    { step: 3, episode: { success: true, return: 1, expected: '5', group_id: 0 } },
    { step: 3, episode: { success: false, return: -1, group_id: 1 } },
  ]);
  const [, { episode }] = found;
  t.equal(episode.turns.length, 2);
  t.match(episode.turns, [
    { llm_raw_response: 'I look.', reward: 0, rewards: undefined },
    { state: /^You see 2 apples\.$/, llm_raw_response: '4', reward: -1, rewards: { overlong_reward: -0.2 } },
  ]);
});

t.test('verifiers: tools are actions, the cut answer and the failed rollout say so', async t => {
  const { found, formats } = imported(jsonLines(VERIFIERS_ROWS));
  t.same(formats, ['verifiers']);
  const [tools, cut, failed] = found.map(({ episode }) => episode);
  t.same(textsOf(tools), [
    [
      'system\nUse the tool.\n\nuser\nWeather in Rome?',
      'I ask.\n→ weather({"city":"Rome"})',
      ['weather({"city":"Rome"})'],
    ],
    ['sunny', 'It is sunny.', ['Answer']],
  ]);
  t.match(tools, {
    return: 0.9,
    tag: 'weather',
    ended_by: 'no_tools_called',
    expected: 'sunny',
    success: null,
  });
  t.match(tools.turns[1], { reward: 0.9, rewards: { exact_match: 0, num_turns: 2 } });
  t.match(cut, { truncated: true, terminated: false, turns: [{ finish_reason: 'length' }] });
  t.match(failed, { ended_by: 'error', turns: [] });
});

t.test('ATIF: one document, steps of the agent are turns, observations what comes next', async t => {
  for (const text of [JSON.stringify(ATIF_DOCUMENT), JSON.stringify(ATIF_DOCUMENT, null, 2)]) {
    const { found, formats } = imported(text, 7);
    t.same(formats, ['ATIF']);
    t.same(textsOf(found[0].episode), [
      [
        'system\nYou have a shell.\n\nuser\nList the files.',
        'ls does that.\n\nI list them.\n→ bash({"command":"ls"})',
        ['bash({"command":"ls"})'],
      ],
      ['a.txt', 'There is a.txt.', ['Answer']],
    ]);
    t.match(found[0].episode, { return: null, success: null, tag: 'terminus-2', episode_id: 'trial-1' });
  }
});

t.test('long arguments of a tool have a line each, and texts of several lines are readable', async t => {
  const given = { keystrokes: "cat > a.py <<'PY'\nprint(1)\nPY\n", duration: 15, block: true };
  const lines = [
    'bash(',
    '  keystrokes: ',
    "    cat > a.py <<'PY'",
    '    print(1)',
    '    PY',
    '  duration: 15',
    '  block: true',
    ')',
  ];
  t.equal(callOf({ function_name: 'bash', arguments: given }), lines.join('\n'));
  t.equal(callOf({ function: { name: 'bash', arguments: JSON.stringify(given) } }), lines.join('\n'));
  const command = `grep -rn ${'x'.repeat(100)}`;
  t.equal(callOf({ name: 'bash', arguments: { command } }), `bash(\n  command: ${command}\n)`);
  t.equal(callOf({ name: 'bash', arguments: 'ls -l' }), 'bash(ls -l)');
});

t.test('ragen: an episode keeps its seed, success and group', async t => {
  const own = {
    turns: [],
    samples: [],
    seed: 7,
    success: true,
    return: 2,
    group_id: 5,
    member: 3,
    tag: 'Lake',
  };
  const { found } = imported(jsonLines([own]));
  t.match(found, [{ episode: { seed: 7, success: true, return: 2, group_id: 5, member: 3 } }]);
  t.equal(found[0].episode.format, undefined);
});

t.test(
  'pieces of any size, lists, marks of the byte order and line ends of Windows give the same',
  async t => {
    const whole = imported(jsonLines(VERL_ROWS)).found;
    for (const piece of [1, 3, 64]) t.same(imported(jsonLines(VERL_ROWS), piece).found, whole);
    t.same(imported(JSON.stringify(VERL_ROWS)).found, whole);
    t.same(imported(JSON.stringify(VERL_ROWS, null, 1), 5).found, whole);
    t.same(imported(`\ufeff${jsonLines(VERL_ROWS).replaceAll('\n', '\r\n\r\n')}`).found, whole);
  },
);

t.test('a last line that is half written is left out and reported', async t => {
  const { found, isCut } = imported(jsonLines(VERL_ROWS).slice(0, -9));
  t.same([found.length, isCut], [1, true]);
  t.equal(imported(jsonLines(VERL_ROWS).trimEnd()).found.length, 2);
});

t.test('a file that is not a trajectory is refused by line, with the reason', async t => {
  const [row] = VERL_ROWS;
  const line = JSON.stringify(row);
  t.match(refused(`${line}\n{"input": 1,}\n`), /^line 2 is not JSON: .*\(column \d+\)$/);
  t.match(refused('hello\n'), /^line 1 is not JSON: /);
  t.match(refused(`${line}\n${line}\n{"input": \n`), /^line 3 is not JSON: (?!.*line 1)/);
  t.match(refused(`${line}\n[1]\n`), /^item 1 is not an object: 1$/);
  t.match(refused(`${line}\n7\n`), /^line 2 is not an object: 7$/);
  t.match(
    refused('{"a": 1, "b": 2}\n'),
    /^line 1 is not a trajectory: it has the fields \["a","b"\]; .*verl \(input/,
  );
  t.match(refused(`${line}\n${JSON.stringify(TRL_ROWS[0])}\n`), /^line 2 is not of the format .* verl \(/);
  t.match(
    refused(`${JSON.stringify({ ...row, score: '1' })}\n`),
    /^line 1, verl: `score` is a number, got "1"$/,
  );
  t.match(refused(`${JSON.stringify({ ...row, step: -1 })}\n`), /`step` is a whole number from 0/);
  t.match(refused(`${JSON.stringify({ ...row, step: 1e300 })}\n`), /`step` is a whole number from 0/);
  t.match(refused('{"prompt": 3, "completion": ""}\n'), /`prompt` is a text or a list of messages, got 3/);
  t.match(
    refused('{"prompt": [{"content": 1}], "completion": ""}\n'),
    /`prompt\[0\]` is a message with `role`/,
  );
  t.match(refused('{"schema_version": "ATIF-v1.4"}'), /^the document, ATIF: `steps` is a list of steps/);
  t.match(
    refused('{"schema_version": "ATIF-v1.4", "steps": [null]}'),
    /`steps\[0\]` is a step with a `source`/,
  );
  t.match(refused('{\n"a": 1,\n'), /^neither JSON Lines nor one JSON document/);
  t.match(refused('[]\n'), /^an empty list$/);
  t.match(
    refused(Buffer.concat([Buffer.from(`${line}\n`), Buffer.from([0xff, 0xfe, 0x0a])])),
    /^line 2 is not UTF-8/,
  );
  const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`;
  t.match(
    refused(`{"prompt": "", "completion": [{"role": "assistant", "content": {"a": ${deep}}}]}\n`),
    /^line 1, TRL: nested too deeply$/,
  );
  t.match(
    refused(`{"prompt": ${deep}, "completion": ""}\n`),
    /^line 1, TRL: .* got a value nested too deeply$/,
  );
  t.equal(imported('').found.length, 0);
});

t.test('lines, documents and episodes are bounded', async t => {
  const long = Buffer.alloc(17 * 1024 * 1024, 'a');
  t.match(
    refused(Buffer.concat([Buffer.from(`${JSON.stringify(VERL_ROWS[0])}\n"`), long])),
    /^line 2 is longer than 16 MiB$/,
  );
  const spread = Buffer.from(`{\n${'"a":"aaaaaaaa",\n'.repeat((66 * 1024 * 1024) / 16)}`);
  t.match(refused(spread), /as one document it has more than 64 MiB$/);
  let count = 0;
  const rows = new TrajectoryImport(() => count++);
  const add = (step: number) => rows.add({ ...VERL_ROWS[0], step }, `line ${count + 1}`);
  for (let step = 0; step < 10_000; step++) add(step);
  t.throws(() => add(10_000), /line 10001, verl: step 10000 is step 10001 of these files/);
  while (count < 100_000) add(1);
  t.throws(() => add(1), /line 100001 is episode 100001: at most 100000/);
});

t.test('verifiers 0.4: the way to the last message of each trace, weighted rewards, failures', async t => {
  const { found, formats } = imported(jsonLines(VERIFIERS_TRACES));
  t.same(formats, ['verifiers']);
  const [{ step, episode }, { episode: failed }] = found;
  t.equal(step, 3);
  t.same(
    episode.turns.map(({ state, llm_response }) => [state, llm_response]),
    [
      ['Push the box.', 'Left'],
      ['Again.', 'Down'],
    ],
  );
  t.match(episode, { return: 5, success: true, tag: 'boxes', expected: 'Left', ended_by: 'user_closed' });
  t.match(episode.turns[1].rewards, { episode_return: 10, success: 1 });
  t.match(failed, { turns: [], return: null, success: null, ended_by: 'error' });
  const hostile = {
    ...VERIFIERS_TRACES[0],
    traces: [{ nodes: [{ parent: 0 }, { parent: 1, message: 5 }, 7] }],
  };
  t.match(refused(jsonLines([hostile])), /line 1, verifiers: /);
});
