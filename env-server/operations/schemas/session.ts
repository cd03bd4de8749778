import type { Static } from 'typebox';
import { closed, Type } from '../../../shared/schema/type.ts';
import { MAX_PICTURE_SIZE, MIN_PICTURE_SIZE } from '../../environments/core/drawing/scale.ts';
import type { SeenObservation } from '../../sessions/episodes/episode.ts';
import { Bag, nullable, Wrappers } from './fields.ts';

/** A part of an observation: text, or a picture. */
const Part = Type.Union(
  [
    closed({ type: Type.Literal('text'), text: Type.String() }),
    closed({
      type: Type.Literal('image'),
      mime: Type.String({ description: 'Such as `image/png`.' }),
      data: Type.String({ description: 'The file in base64.' }),
      width: Type.Optional(Type.Integer({ description: 'In pixels.' })),
      height: Type.Optional(Type.Integer({ description: 'In pixels.' })),
    }),
  ],
  { title: 'ObservationPart' },
);

export const Observation = Type.Unsafe<SeenObservation>(
  Type.Union([Type.String(), Type.Array(Part), Bag], {
    title: 'Observation',
    description:
      'Text; an object where the format is `structured`; a list of texts and pictures where it is `parts`.',
  }),
);
export const Info = Type.Unsafe<{ [key: string]: unknown }>({
  type: 'object',
  title: 'Info',
  description: 'Details of a step, with the environment’s own keys. Empty after a reset.',
  additionalProperties: true,
  properties: {
    success: Type.Boolean({ description: 'The task is solved.' }),
    action_is_valid: Type.Boolean({ description: 'The environment knows the action.' }),
    action_is_effective: Type.Boolean({ description: 'The action changed the state.' }),
    ended_by: Type.String({
      description:
        'In the step that ends the episode: the reason, a name among `ends` of the environment, e.g. `time_limit`.',
    }),
  },
});

export const Reseeds = Type.Array(
  Type.Object({ step: Type.Integer(), dynamics_seed: Type.Integer() }, { title: 'Reseed' }),
  {
    description:
      'Changes of the random stream during the episode: after `step`, chance is drawn from `dynamics_seed`. Absent if there are none.',
  },
);
const StateKey = Type.String({
  description:
    'Names the state of environment and wrappers; present where the session was opened with `state_key`.',
});

const sessionProperties = {
  session_id: Type.String(),
  env_id: Type.String(),
  group_id: nullable(Type.String(), 'Shared by the members of a group.'),
  episode_id: Type.String({ description: 'Changes with every reset, restore and clone.' }),
  seed: nullable(Type.Integer(), 'Effective seed; null where the environment draws nothing.'),
  dynamics_seed: Type.Optional(
    Type.Integer({
      description: 'Seed of all chance after the start; absent where the generator of `seed` continues.',
    }),
  ),
  reseeds: Type.Optional(Reseeds),
  step: Type.Integer({ description: 'Steps taken in this episode.' }),
  max_episode_steps: Type.Integer({ description: 'Steps after which this episode is cut.' }),
  level_id: Type.Optional(
    Type.String({
      description:
        'Names the level of an episode at step 0: equal for levels that the environment counts as the same, such as mirror images; absent where the first observation identifies the level.',
    }),
  ),
  state_key: Type.Optional(StateKey),
  observation: Observation,
  info: Info,
  expires_at: Type.String({
    format: 'date-time',
    description: 'When the session expires unless it is used.',
  }),
};

export const Session = Type.Object(sessionProperties, { title: 'Session' });
export type Session = Static<typeof Session>;

export const CreatedSession = Type.Object(
  {
    ...sessionProperties,
    sessions: Type.Optional(
      Type.Array(Session, { description: 'All members, the first included; present when `count` > 1.' }),
    ),
  },
  { title: 'CreatedSession', description: 'The session, or the first of the group.' },
);
export type CreatedSession = Static<typeof CreatedSession>;

export const SessionDetail = Type.Object(
  {
    ...sessionProperties,
    return: Type.Number({ description: 'Sum of the rewards of this episode so far.' }),
    terminated: Type.Boolean(),
    truncated: Type.Boolean(),
    structured: Type.Unknown({ description: 'The state as plain JSON.' }),
    config: Bag,
    wrappers: Wrappers,
    options: Bag,
    observation_format: Type.String(),
    created_at: Type.String({ format: 'date-time' }),
    memory: Type.Object(
      { bytes: Type.Integer(), limit_bytes: Type.Integer() },
      { description: 'Estimated memory of the session, and its limit.' },
    ),
    persistence: Type.Optional(
      Type.Object(
        { state: Type.Enum(['unsaved'], { type: 'string' }), reason: Type.String() },
        { description: 'Present when the session cannot be stored, and ends with the server.' },
      ),
    ),
  },
  { title: 'SessionDetail' },
);
export type SessionDetail = Static<typeof SessionDetail>;

export const SessionPage = Type.Object(
  {
    sessions: Type.Array(Session),
    next_cursor: nullable(Type.String(), 'Pass as `cursor` for the next page; null on the last.'),
  },
  { title: 'SessionPage' },
);

export const StepResult = Type.Object(
  {
    session_id: Type.String(),
    episode_id: Type.String(),
    step: Type.Integer({ description: 'Steps taken in this episode, this one included.' }),
    observation: Observation,
    reward: Type.Number(),
    terminated: Type.Boolean({ description: 'The episode ended by the rules of the environment.' }),
    truncated: Type.Boolean({ description: 'The episode was cut short, by a step limit for example.' }),
    info: Info,
    state_key: Type.Optional(StateKey),
  },
  { title: 'StepResult' },
);
export type StepResult = Static<typeof StepResult>;

export const Snapshot = Type.Object({ snapshot_id: Type.String() }, { title: 'Snapshot' });

export const ClonedSessions = Type.Object({ sessions: Type.Array(Session) }, { title: 'ClonedSessions' });

export const PictureSize = Type.Integer({
  minimum: MIN_PICTURE_SIZE,
  maximum: MAX_PICTURE_SIZE,
  description: 'Pixels of the longer side of a picture; as it is painted when absent.',
});

export const RenderMode = Type.Enum(['text', 'png', 'structured'], { type: 'string' });

export const Rendering = Type.Object(
  {
    mode: RenderMode,
    text: Type.Optional(Type.String()),
    png: Type.Optional(Type.String({ description: 'The picture in base64.' })),
    structured: Type.Optional(Type.Unknown()),
  },
  { title: 'Rendering', description: 'One of the fields, as `mode` says.' },
);
export type Rendering = Static<typeof Rendering>;

export const ReferencePlan = Type.Object(
  {
    policy: Type.String(),
    actions: Type.Array(Type.Unknown(), {
      description: 'Next actions in order; empty when there is nothing left to do.',
    }),
  },
  { title: 'ReferencePlan' },
);

export const ValidActions = Type.Object(
  {
    valid_actions: nullable(
      Type.Array(Type.String()),
      'As a player writes them; empty after the end of the episode, null where the environment cannot list them.',
    ),
  },
  { title: 'ValidActions' },
);
export type ValidActions = Static<typeof ValidActions>;
