import type { Static } from 'typebox';
import type { Json } from '../json.ts';
import { compiled } from '../schema/check.ts';
import { Type } from '../schema/type.ts';

const Count = Type.Integer({ minimum: 0 });
const Actions = Type.Array(Type.Unsafe<Json>(Type.Unknown()));

/** Fields of a trajectory line that a replay of the episode needs. */
const SignedEpisode = Type.Object({
  episode_id: Type.String({ maxLength: 1000 }),
  env_id: Type.String(),
  tag: Type.String(),
  member: Count,
  seed: Count,
  dynamics_seed: Type.Optional(Count),
  success: Type.Boolean(),
  terminated: Type.Boolean(),
  truncation: Type.Optional(Type.Enum(['environment', 'max_actions', 'max_turns'])),
  ended_by: Type.Optional(Type.String()),
  turns: Type.Array(
    Type.Object({
      state: Type.String(),
      actions: Actions,
      sent: Type.Optional(Actions),
      reward: Type.Number(),
    }),
  ),
  final_state: Type.Optional(Type.String()),
});
export type SignedEpisode = Static<typeof SignedEpisode>;

const checked = compiled(SignedEpisode);
/** Fields of episodes that did not follow from their start by the policy's actions alone. */
const BRANCHED = ['reseeds', 'nodes', 'continuations', 'prefix'];

/** @throws Error unless the line is a whole validation episode */
export function signedEpisode(value: unknown): SignedEpisode {
  if (!checked.check(value)) {
    const [first] = checked.errors(value);
    throw new Error(`it is not an episode: ${first?.instancePath} ${first?.message}`);
  }
  const branched = BRANCHED.find(name => Object.hasOwn(value as object, name));
  if (branched !== undefined)
    throw new Error(`it is not an episode played from its start: it has \`${branched}\``);
  const known = value as SignedEpisode;
  const { episode_id, env_id, tag, member, seed, dynamics_seed, success, terminated } = known;
  const { truncation, ended_by, final_state } = known;
  const turns = known.turns.map(({ state, actions, sent, reward }) => ({ state, actions, sent, reward }));
  return {
    ...{ episode_id, env_id, tag, member, seed, dynamics_seed, success, terminated },
    ...{ truncation, ended_by, final_state, turns },
  };
}
