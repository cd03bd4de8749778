import t from 'tap';
import {
  canUndo,
  DEFAULT_SETUP,
  type EpisodeEvent,
  type EpisodeState,
  isDefault,
  isOver,
  NOTHING_PLAYED,
  observationOf,
  type PlayEvent,
  pendingText,
  playStartOf,
  reduceEpisode,
  reducePlay,
  totalReward,
} from './session-state.ts';
import type { Environment, PlayedStep, Session } from './wire.ts';

const environment = {
  env_id: 'Lake-v0',
  actions: ['Left', 'Down'],
  action_space: { gymnasium: { type: 'Discrete', n: 2, start: 0 } },
  references: [{ name: 'optimal' }, { name: 'random' }],
} as unknown as Environment;
const session = { session_id: 's-1', observation: 'start', seed: 7 } as unknown as Session;
const start: EpisodeState = {
  environment,
  setup: DEFAULT_SETUP,
  session,
  moves: [],
  structured: undefined,
  snapshots: [],
};
const step = (observation: string, more: Partial<PlayedStep> = {}) =>
  ({
    type: 'stepped',
    action: 'Left',
    result: { observation, reward: 1, terminated: false, truncated: false, info: {}, ...more },
  }) as unknown as EpisodeEvent;
const after = (...events: readonly EpisodeEvent[]) => events.reduce(reduceEpisode, start);
const played = (...events: readonly PlayEvent[]) => events.reduce(reducePlay, NOTHING_PLAYED);

t.test('an episode grows by steps and goes back to what was remembered', t => {
  const two = after(
    { type: 'remembering', step: 0 },
    step('one'),
    { type: 'remembering', step: 1 },
    step('two'),
  );
  t.equal(observationOf(two), 'two');
  t.equal(totalReward(two), 2);
  t.ok(canUndo(two));
  const back = reduceEpisode(two, { type: 'restored', session, step: 1 });
  t.equal(observationOf(back), 'one');
  t.equal(back.moves.length, 1);
  const begun = reduceEpisode(back, {
    type: 'restored',
    session: { ...session, observation: 'as it was' },
    step: 0,
  });
  t.equal(observationOf(begun), 'as it was');
  t.notOk(canUndo(begun), 'there is nothing before the start');
  t.equal(start.moves.length, 0, 'the state before is left as it was');
  t.end();
});

t.test('a snapshot that is refused takes the way back, and says why until one succeeds', t => {
  const refused = after(
    { type: 'remembering', step: 0 },
    { type: 'forgotten', step: 0, problem: 'too many snapshots' },
    step('one'),
  );
  t.notOk(canUndo(refused));
  t.equal(refused.undoProblem, 'too many snapshots');
  t.equal(reduceEpisode(refused, { type: 'remembered' }).undoProblem, undefined);
  const late = after({ type: 'remembering', step: 0 }, step('one'), { type: 'forgotten', problem: 'late' });
  t.ok(canUndo(late), 'a refusal of an episode before says nothing about this one');
  t.end();
});

t.test('steps taken elsewhere replace what was known, without a way back', t => {
  const record = (observation: string) => ({ observation, action: 'Down', reward: 0.5, info: {} });
  const reread = after({ type: 'remembering', step: 0 }, step('one'), {
    type: 'reread',
    session: session as never,
    records: [{ observation: 'first' }, record('a'), record('b')] as never,
  });
  t.equal(observationOf(reread), 'b');
  t.equal(reread.session.observation, 'first');
  t.equal(totalReward(reread), 1);
  t.notOk(canUndo(reread));
  t.end();
});

t.test('an episode ends with its last step, but never under auto_reset', t => {
  const ended = after(step('end', { terminated: true }));
  t.ok(isOver(ended));
  t.ok(isOver(after(step('end', { truncated: true }))));
  t.notOk(isOver(after(step('on'))));
  const wrappers = [{ name: 'auto_reset' }] as never;
  t.notOk(isOver({ ...ended, setup: { ...DEFAULT_SETUP, wrappers } }));
  t.ok(isDefault(ended));
  t.notOk(isDefault({ ...ended, setup: { ...DEFAULT_SETUP, config: { size: 4 } } }));
  t.end();
});

t.test('the address has start and actions, and leaves actions out that are too long for it', t => {
  const setup = { ...DEFAULT_SETUP, config: { preset: 'large', size: 4 } };
  t.match(playStartOf({ ...after(step('one')), setup }), {
    envId: 'Lake-v0',
    preset: 'large',
    seed: 7,
    config: { size: 4 },
    format: undefined,
    actions: ['Left'],
  });
  const long = after(...Array.from({ length: 600 }, () => step('on')));
  t.same(playStartOf(long).actions, []);
  const chance = { dynamics_seed: 4, reseeds: [{ step: 1, dynamics_seed: 9 }] };
  const withChance = (state: EpisodeState) => playStartOf({ ...state, session: { ...session, ...chance } });
  t.match(withChance(after(step('one'))), { dynamicsSeed: 4, actions: ['Left'], reseeds: chance.reseeds });
  t.match(withChance(long), { dynamicsSeed: 4, actions: [], reseeds: undefined });
  t.end();
});

t.test('actions wait in their order; a late snapshot never overwrites a newer step', t => {
  const queued = played(
    { type: 'described', environment },
    { type: 'begun', episode: start },
    ...Array.from({ length: 10 }, (_, index) => ({ type: 'queued', action: index % 2 }) as const),
  );
  t.equal(queued.policy, 'optimal');
  t.equal(
    pendingText(queued),
    'Next: Left, Down, Left, Down, Left, Down, Left, Down and 2 more',
    'by their names',
  );
  const taken = reducePlay(queued, { type: 'taken' });
  t.match(pendingText(taken), /^Next: Down, Left/);
  const dropped = reducePlay(taken, { type: 'dropped' });
  t.equal(pendingText(dropped), '');
  t.equal(pendingText(reducePlay(dropped, { type: 'slow', isSlow: true })), 'Waiting for the server …');
  t.equal(reducePlay(dropped, { type: 'dropped' }), dropped, 'nothing is drawn again for nothing');

  const stepped = reducePlay(dropped, { type: 'changed', episode: after(step('one')) });
  t.equal(reducePlay(stepped, { type: 'remembered', episode: start }), stepped);
  t.end();
});

t.test('a session that is gone stays gone until another begins; another environment begins empty', t => {
  const failed = played(
    { type: 'begun', episode: start },
    { type: 'failed', problem: new Error('session_closed'), isGone: true },
    { type: 'failed', problem: new Error('again'), isGone: false },
  );
  t.ok(failed.isGone);
  t.match(failed.problem, { message: 'again' });
  const begun = reducePlay(failed, { type: 'begun', episode: start });
  t.notOk(begun.isGone);
  t.equal(begun.problem, undefined);
  const fast = reducePlay(begun, { type: 'policy', speed: 'fast' });
  const next = reducePlay(reducePlay(fast, { type: 'focus' }), { type: 'opening', envId: 'Other-v0' });
  t.equal(next.episode, undefined);
  t.equal(next.environment, undefined);
  t.equal(next.speed, 'fast', 'the speed that was chosen stays');
  t.equal(next.focusRequests, 1, 'the focus is not requested again');
  t.ok(next.isOpening);
  t.notOk(reducePlay(next, { type: 'opened' }).isOpening);
  t.end();
});
