import t from 'tap';
import { golden } from '../../../../test/golden.test-data.ts';
import { type AdvantageSequence, DEFAULT_ADVANTAGE_SETTINGS, type GraphSettings } from '../estimator.ts';
import { estimateAdvantages } from '../registry.ts';
import { distancesToGoal, groupTurns } from './estimators.ts';

interface GoldenEpisode {
  readonly states: readonly string[];
  readonly next?: readonly string[];
  readonly success?: boolean;
  readonly return?: number;
  readonly rewards?: readonly number[];
  readonly valid?: readonly boolean[];
}
interface Case {
  readonly input: {
    readonly groups?: readonly (readonly GoldenEpisode[])[];
    readonly episodes?: readonly GoldenEpisode[];
    readonly gamma?: number;
    readonly lambda?: number;
    readonly std_normalize?: boolean;
    readonly progress?: boolean;
  };
  readonly output:
    | readonly {
        readonly advantages: readonly (number | null)[];
        readonly distances?: Record<string, number>;
      }[]
    | { readonly advantages: readonly (number | null)[] };
}

/** One token a turn; the last turn has the return where single rewards are not given. */
function sequenceOf(episode: GoldenEpisode, groupId: number, episodeId: string): AdvantageSequence {
  const { states, next } = episode;
  return {
    lossMask: states.map(() => 1),
    rewards: episode.rewards ?? states.map((_, k) => (k === states.length - 1 ? episode.return! : 0)),
    turnEnds: states.map((_, k) => k),
    states,
    finalState: next?.at(-1) ?? 'end',
    success: episode.success ?? false,
    ...(episode.valid ? { validTurns: episode.valid } : {}),
    groupId,
    episodeId,
  };
}

const settingsOf = (graph: Partial<GraphSettings>, stdNormalize = true) => ({
  stdNormalize,
  graph: { ...DEFAULT_ADVANTAGE_SETTINGS.graph, ...graph },
});

for (const name of ['graph_gpo', 'g2po', 'gagpo'] as const) {
  t.test(`${name} gives the golden advantages`, async t => {
    const { cases } = golden<{ cases: readonly Case[] }>(`branching_${name}.json`);
    for (const { input, output } of cases) {
      const groups = input.groups ?? [input.episodes!];
      const sequences = groups.flatMap((group, g) => group.map((one, e) => sequenceOf(one, g, `${g}.${e}`)));
      const { gamma, lambda, progress } = input;
      const { advantages } = estimateAdvantages(
        name,
        sequences,
        settingsOf(
          {
            ...(gamma === undefined ? {} : { gamma }),
            ...(lambda === undefined ? {} : { lambda }),
            ...(progress === undefined ? {} : { progress }),
            ...(name === 'g2po' ? { successValue: 10 } : {}),
          },
          input.std_normalize ?? true,
        ),
      );
      const wanted = (Array.isArray(output) ? output : [output]).flatMap(({ advantages }) => advantages);
      const found = advantages.flatMap(row => [...row]);
      t.equal(found.length, wanted.length);
      for (const [i, value] of wanted.entries()) {
        // Where the original gives NaN, its sum of single entries is still a number here.
        if (value === null) t.ok(Number.isFinite(found[i]));
        else if (Math.abs(found[i] - value) > 1e-7 * Math.max(1, Math.abs(value)))
          t.fail(`turn ${i}: ${found[i]} is not ${value}`);
      }
    }
  });
}

t.test('distances follow the edges that were taken, and the goal is not a state with that text', async t => {
  const { cases } = golden<{ cases: readonly Case[] }>('branching_graph_gpo.json');
  for (const { input, output } of cases) {
    input.groups!.forEach((group, g) => {
      const [turns] = groupTurns(
        group.map((one, e) => sequenceOf(one, 0, `${e}`)),
        'graph_gpo',
      );
      const { of } = distancesToGoal(turns);
      for (const [state, distance] of Object.entries(
        (output as unknown as { distances?: object }[])[g].distances!,
      )) {
        if (state !== 'GOAL') t.equal(of(state), distance, state);
      }
    });
  }
  const named = { states: ['a', 'GOAL'], next: ['GOAL', 'b'], success: false, return: 0 };
  const [turns] = groupTurns([sequenceOf(named, 0, '0')], 'graph_gpo');
  t.equal(distancesToGoal(turns).reachable.size, 1);
});

t.test('without a success steps have no credit; a group of one turn has none at all', async t => {
  const failed = { states: ['a', 'a', 'b'], next: ['a', 'b', 'c'], success: false, return: 0 };
  for (const name of ['graph_gpo', 'g2po', 'gagpo']) {
    const { advantages, metrics } = estimateAdvantages(name, [
      sequenceOf(failed, 0, '0'),
      sequenceOf(failed, 0, '1'),
    ]);
    t.same(
      advantages.flatMap(row => [...row]),
      [0, 0, 0, 0, 0, 0],
      name,
    );
    t.match(metrics, { 'graph/nodes': 3, 'graph/edges': 3, 'graph/singleton_ratio': 0 });
    const single = { states: ['a'], next: ['b'], success: false, return: 0 };
    t.same([...estimateAdvantages(name, [sequenceOf(single, 0, '0')]).advantages[0]], [0], name);
  }
});

t.test(
  'an episode cut into sequences, and one without the state after its end, are refused by name',
  async t => {
    const one = sequenceOf({ states: ['a'], next: ['b'], success: true, return: 1 }, 0, 'x');
    t.throws(() => estimateAdvantages('graph_gpo', [one, one]), /graph_gpo needs one sequence per episode/);
    const { finalState: _end, ...open } = one;
    t.throws(() => estimateAdvantages('g2po', [open]), /g2po needs the state after the last turn/);
  },
);
