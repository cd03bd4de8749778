import t from 'tap';
import { buildByteTokenizer, buildWordTokenizer } from '../models/tokenizer/builder.ts';
import { compactByteWords, compactPrompt, compactVocabulary } from '../prompts/compact.ts';
import type { PromptTask, TurnView } from '../prompts/prompt.ts';
import { LAKE, POND } from '../prompts/tasks.test-data.ts';
import { type ContextMode, EpisodeContext, EpisodeTooLong, PromptTooLong } from './context.ts';
import { TokenBuffer } from './token-buffer.ts';

const tokenizer = buildWordTokenizer(compactVocabulary([LAKE]));
const RESPONSE = Int32Array.from(tokenizer.encode('</think><answer>Up</answer>'));
const SAID = '<think></think><answer>Up</answer>';
/** Tokens of a turn's prompt and of its response. */
const PROMPT = 22;
const REPLY = RESPONSE.length;

const view = (turn: number): TurnView => ({ turn, state: POND, actionsLeft: 11 - turn, lastInvalid: false });

/** Plays turns; what each was given, which sequences were let go, and the samples. */
function play(
  turns: number,
  maxSequenceLength: number,
  mode: ContextMode = 'full',
  window = 0,
  task: PromptTask = LAKE,
  whole = false,
) {
  const prompt = compactPrompt(task, tokenizer);
  const released: number[] = [];
  let next = 0;
  const context = new EpisodeContext(
    prompt,
    prompt.tokens!,
    { mode, window, maxSequenceLength, whole },
    () => next++,
    id => released.push(id),
  );
  const steps = [];
  const places = [];
  for (let turn = 1; turn <= turns; turn++) {
    steps.push(context.begin(view(turn)));
    places.push(
      context.accept(
        {
          tokenIds: RESPONSE,
          logProbs: new Float32Array(REPLY).fill(-turn),
          values: new Float32Array(REPLY).fill(turn),
          versions: new Int32Array(REPLY).fill(turn),
        },
        SAID,
      ),
    );
  }
  const following = context.following(view(turns + 1));
  return { steps, places, released, following, samples: context.finish() };
}

const trained = (lossMask: Uint8Array): number => lossMask.reduce((sum, bit) => sum + bit, 0);

t.test('an episode that fits is one sequence, appended to', async t => {
  const { steps, places, samples, released } = play(3, 161);
  t.same(
    steps.map(step => [step.sequenceId, step.append.length, step.maxNewTokens]),
    [0, 1, 2].map(() => [0, PROMPT, 8]),
  );
  t.equal(samples.length, 1);
  const [{ tokenIds, lossMask, logProbs, values, versions }] = samples;
  t.equal(tokenIds.length, 3 * (PROMPT + REPLY));
  t.same(tokenizer.encode(tokenizer.decode(tokenIds)), [...tokenIds], 'the whole text has the same tokens');
  for (const [i, { tokens, sample }] of places.entries()) {
    t.equal(sample, 0);
    t.same([...tokenIds.slice(...tokens)], [...RESPONSE]);
    t.ok(lossMask.slice(...tokens).every(bit => bit === 1));
    t.ok(logProbs.slice(...tokens).every(value => value === -(i + 1)));
    t.ok(values!.slice(...tokens).every(value => value === i + 1));
    t.ok(versions.slice(...tokens).every(value => value === i + 1));
  }
  t.equal(trained(lossMask), 3 * REPLY);
  t.same(released, [0]);
});

t.test('a full context drops the oldest turns and trains each token once', async t => {
  const room = 2 * (PROMPT + REPLY) + PROMPT + 8 - 1;
  const { steps, places, samples, released } = play(4, room);
  t.same(
    steps.map(step => step.sequenceId),
    [0, 0, 1, 2],
  );
  t.equal(steps[2].append.length, PROMPT + REPLY + PROMPT, 'the second turn and the third');
  t.ok(samples.every(sample => sample.tokenIds.length <= room));
  t.equal(
    samples.reduce((sum, sample) => sum + trained(sample.lossMask), 0),
    4 * REPLY,
  );
  for (const { tokens, sample } of places) {
    t.ok(samples[sample].lossMask.slice(...tokens).every(bit => bit === 1));
  }
  t.same(released, [0, 1, 2]);
});

t.test('limited_multi_turn shows the last turns and trains the last', async t => {
  const { samples, steps } = play(4, 161, 'limited_multi_turn', 2);
  t.same(
    steps.map(step => step.append.length),
    [PROMPT, 2 * PROMPT + REPLY, 2 * PROMPT + REPLY, 2 * PROMPT + REPLY],
  );
  t.equal(samples.length, 4);
  for (const { lossMask, tokenIds } of samples) {
    t.equal(trained(lossMask), REPLY);
    t.ok(lossMask.slice(tokenIds.length - REPLY).every(bit => bit === 1));
  }
  t.same(
    samples.map(({ repeated }) => repeated),
    [undefined, PROMPT + REPLY, PROMPT + REPLY, PROMPT + REPLY],
    'what earlier samples train',
  );
});

t.test('single_turn retells the turns in one message', async t => {
  const { samples } = play(3, 161, 'single_turn');
  t.equal(samples.length, 3);
  const text = tokenizer.decode(samples[2].tokenIds);
  t.equal(text.split('<grid>').length, 4);
  t.equal(trained(samples[2].lossMask), REPLY);
  const { length } = samples[2].tokenIds;
  t.same(
    samples.map(({ repeated }) => repeated),
    [undefined, samples[1].tokenIds.length - REPLY, length - REPLY],
    'the retold turns and the new one are one message',
  );
});

t.test('a window limits full contexts as well', async t => {
  const { samples } = play(4, 161, 'full', 2);
  t.ok(samples.every(sample => tokenizer.decode(sample.tokenIds).split('<grid>').length <= 3));
  t.equal(
    samples.reduce((sum, sample) => sum + trained(sample.lossMask), 0),
    4 * REPLY,
  );
});

t.test('an episode that must be whole is refused where it would be cut', async t => {
  t.equal(play(4, 80).samples.length > 1, true);
  t.throws(() => play(4, 80, 'full', 0, LAKE, true), EpisodeTooLong);
  t.throws(
    () => play(4, 80, 'full', 0, LAKE, true),
    /the advantage takes whole episodes: raise policy\.context/,
  );
  t.equal(play(1, 161, 'full', 0, LAKE, true).samples.length, 1);
});

t.test('the response gets what room there is; a prompt without any is refused', async t => {
  const { steps } = play(1, PROMPT + 3);
  t.equal(steps[0].maxNewTokens, 3);
  t.throws(() => play(1, PROMPT), PromptTooLong);
  t.throws(() => play(1, PROMPT), /turn 1 has 22 tokens.*holds 22.*policy\.context/);
});

t.test(
  'what would follow an episode is the next prompt, where it is one sequence with room for it',
  async t => {
    const { following, samples } = play(2, 161);
    const longer = play(3, 161);
    t.same([...samples[0].tokenIds, ...following!], [...longer.samples[0].tokenIds.slice(0, -REPLY)]);
    t.equal(
      play(2, 2 * (PROMPT + REPLY) + PROMPT, 'full').following,
      undefined,
      'no room for one more token',
    );
    t.equal(play(2, 161, 'single_turn').following, undefined);
  },
);

t.test(
  'an observation too long for the context shows its beginning and its end, and leaves room to answer',
  async t => {
    const { vocabulary: _, ...description } = LAKE.description;
    const task = { ...LAKE, description };
    const bytes = buildByteTokenizer(compactByteWords([task]));
    const prompt = compactPrompt(task, bytes);
    const begun = (state: string, maxSequenceLength: number, turn = 1) => {
      const settings = { mode: 'single_turn', window: 1, maxSequenceLength } as const;
      const context = new EpisodeContext(
        prompt,
        prompt.tokens!,
        settings,
        () => 0,
        () => {},
      );
      return context.begin({ ...view(turn), state });
    };
    const error = `Traceback: ${'é✓🙂 '.repeat(30_000)}KeyError: 'plan'`;
    const { append, maxNewTokens, isCut } = begun(error, 150);
    t.equal(maxNewTokens, task.responseLength);
    t.ok(append.length <= 150 - task.responseLength && append.length > 130, `${append.length} tokens`);
    const shown = bytes.decode(append);
    t.match(shown, /Traceback: é✓🙂.* \[\d+ characters cut\] .*KeyError: 'plan'<think>$/);
    t.notMatch(shown, /\ufffd/, 'no character is cut in two');
    t.ok(isCut);

    const fits = 'x'.repeat(150 - task.responseLength - begun('', 150).append.length);
    t.match(begun(fits, 150), { isCut: false, maxNewTokens: task.responseLength });
    t.match(begun(`${fits}xxxx`, 150), { isCut: false, maxNewTokens: 4 }, 'half of a response is left');
    t.match(begun(`${fits}xxxxx`, 150), { isCut: true, maxNewTokens: task.responseLength });
    t.throws(() => begun(error, 20), PromptTooLong, 'no room for the note either');
  },
);

t.test('an observation too long by far is not tokenized whole', t => {
  const { vocabulary: _, ...description } = LAKE.description;
  const task = { ...LAKE, description };
  const bytes = buildByteTokenizer(compactByteWords([task]));
  const state = `begin${'é'.repeat(1_000_000)}end`;
  let longest = 0;
  const watched = { ...compactPrompt(task, bytes).tokens! };
  const { turn } = watched;
  watched.turn = view => {
    longest = Math.max(longest, view.state.length);
    return turn(view);
  };
  const openings = (mode: ContextMode, whole = false) => {
    const settings = { mode, window: 0, maxSequenceLength: 161, whole };
    let next = 0;
    const context = new EpisodeContext(
      compactPrompt(task, bytes),
      watched,
      settings,
      () => next++,
      () => {},
    );
    const accept = () =>
      context.accept({ tokenIds: RESPONSE, logProbs: new Float32Array(REPLY).fill(-1) }, SAID);
    const first = context.begin({ ...view(1), state });
    t.ok(first.isCut && first.append.length <= 161 - task.responseLength);
    t.match(bytes.decode(first.append), /begin.*\[\d+ characters cut\].*end/);
    accept();
    t.equal(context.following({ ...view(2), state }), undefined);
    return () => context.begin({ ...view(2), state });
  };
  t.ok(openings('full')().isCut);
  t.ok(openings('limited_multi_turn')().isCut);
  t.throws(openings('full', true), { message: /turn 2 has an observation of 1000008 characters.*holds 161/ });
  t.ok(longest < 1000, `${longest} characters at once`);
  t.end();
});

t.test('a buffer grows and keeps everything', async t => {
  const buffer = new TokenBuffer();
  const context = Array.from({ length: 300 }, (_, i) => i);
  buffer.addContext(context);
  const place = buffer.addSampled({
    tokenIds: Int32Array.from({ length: 700 }, (_, i) => 300 + i),
    logProbs: new Float32Array(700).fill(-2),
    values: new Float32Array(700).fill(3),
    versions: new Int32Array(700).fill(4),
  });
  t.same(place, [300, 1000]);
  const { tokenIds, lossMask, logProbs, values, versions } = buffer.sample();
  t.equal(buffer.length, 1000);
  t.ok(tokenIds.every((id, i) => id === i));
  t.ok(lossMask.every((bit, i) => bit === (i < 300 ? 0 : 1)));
  t.ok(logProbs.every((value, i) => value === -2 * lossMask[i]));
  t.ok(values!.every((value, i) => value === 3 * lossMask[i]));
  t.ok(versions.every((value, i) => value === 4 * lossMask[i]));
});

t.test('without a value head there are no values', async t => {
  const buffer = new TokenBuffer();
  buffer.addSampled({ tokenIds: [1, 2] });
  t.equal(buffer.sample().values, undefined);
});
