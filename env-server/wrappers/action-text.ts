import type { Static } from 'typebox';
import type { Json } from '../../shared/json.ts';
import type { Random } from '../../shared/random.ts';
import {
  ACTION_SEPARATOR,
  type ActionNames,
  isPenalized,
  mapActions,
  parseResponse,
} from '../../shared/response.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { sumComponents } from '../../shared/step-info.ts';
import {
  type AnyEnvironment,
  type StepInfo,
  type Transition,
  withTimeLimit,
} from '../environments/core/environment.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import { integerSetting, numberSetting, stepLimit } from '../environments/core/settings.ts';
import { charactersOf, LINES } from '../environments/core/spaces.ts';
import {
  type NestedState,
  nested,
  UnfitWrapper,
  wrapper,
  writtenAction,
  writtenValidActions,
} from './layer.ts';

/** Characters of a response. */
const MAX_RESPONSE_LENGTH = 100_000;

const optionsSchema = closed({
  think: Type.Boolean({
    default: true,
    description: 'Requires <think>…</think> before the answer.',
  }),
  max_actions: integerSetting(5, [1, 100], 'Maximum actions of one answer; further ones are dropped.'),
  format_penalty: numberSetting(
    -0.1,
    [-1e6, 0],
    'Added to the reward of a turn without a valid action or with an unknown one.',
  ),
});
type Options = Static<typeof optionsSchema>;

/** Actions done so far, and how many the episode has. */
type ActionTextState = { readonly done: number; readonly limit: number };

/** Count of the actions of a turn so far. */
interface ActionCount {
  readonly transition: Transition<Json>;
  readonly done: number;
  readonly reward: number;
  readonly effective: boolean;
  readonly valid: boolean;
  /** Reward components of all actions. */
  readonly rewards: ReturnType<typeof sumComponents>;
}

/** A step is a turn: text with one or several actions, read as the trainer reads it (`shared/response.ts`). */
export const actionText = wrapper({
  name: 'action_text',
  title:
    'Takes text such as <think>…</think><answer>Up || Left</answer> as action and does what it says in order.',
  optionsSchema,
  wrap(environment, options) {
    const { think, max_actions: maxActions, format_penalty: penalty } = options as Options;
    const { spec } = environment;
    const space = spec.actionSpace;
    if (space.type !== 'Discrete' && space.type !== 'Text') {
      throw new UnfitWrapper('', `the actions of ${spec.id} are ${space.type}, neither discrete nor text`);
    }
    const names =
      space.type === 'Discrete' && space.names ? { names: space.names, start: space.start ?? 0 } : undefined;
    const charset = space.type === 'Text' ? space.charset : charactersOf(LINES, ...(space.names ?? []));
    const [least, most] = spec.rewardRange;
    const listed = writtenValidActions(environment);
    const answer = (actions: readonly Json[]): string =>
      `${think ? '<think></think>' : ''}<answer>${actions.map(action => writtenAction(environment, action)).join(` ${ACTION_SEPARATOR} `)}</answer>`;

    return nested<ActionTextState>(environment, {
      spec: {
        actionSpace: {
          type: 'Text',
          maxLength: MAX_RESPONSE_LENGTH,
          ...(charset !== undefined && { charset }),
        },
        rewardRange: [Math.min(least * maxActions, least, 0) + penalty, Math.max(most * maxActions, most, 0)],
        exampleAction: answer([spec.exampleAction]),
      },
      validActions: listed ? inner => listed(inner).map(action => answer([action])) : null,
      describe: config => {
        const { actions, actionFormat, exampleActions, ...description } = environment.describe(config);
        const one = actions ? actions.join(', ') : actionFormat;
        const form = `${think ? '<think>…</think>' : ''}<answer>action${maxActions > 1 ? ` ${ACTION_SEPARATOR} action` : ''}</answer>`;
        return {
          ...description,
          actionFormat: `${form}, at most ${maxActions} actions; an action is ${one}`,
        };
      },
      begin: config => ({ done: 0, limit: stepLimit(spec, config) }),
      again: ({ limit }) => ({ done: 0, limit }),
      step: turnOf(environment, options as Options, names),
      references: turnReferences(environment, maxActions, answer),
    });
  },
});

const NOTHING_DONE: StepInfo = { success: false, action_is_valid: false, action_is_effective: false };

type TurnState = NestedState<ActionTextState>;

/** Reads the text of a turn and does what it says. */
function turnOf(
  environment: AnyEnvironment,
  { think, max_actions: maxActions, format_penalty: penalty }: Options,
  names: ActionNames | undefined,
) {
  return (state: TurnState, action: Json, rng: Random): MaybePromise<Transition<TurnState>> => {
    const response = parseResponse(typeof action === 'string' ? action : '', { think, maxActions });
    const actions = mapActions(response.actions, names);
    const due = isPenalized(response.actions.length, actions.length) ? penalty : 0;
    const start: ActionCount = {
      transition: { state: state.inner, reward: 0, terminated: false, info: NOTHING_DONE },
      done: 0,
      reward: 0,
      effective: false,
      valid: due === 0,
      rewards: undefined,
    };
    return chain(play(environment, actions, state.limit - state.done, rng, start), tally => {
      const { transition, done, reward, rewards } = tally;
      const isOver =
        !transition.terminated && transition.truncated !== true && state.done + done >= state.limit;
      return {
        ...transition,
        state: { done: state.done + done, limit: state.limit, inner: transition.state },
        reward: reward + due,
        truncated: transition.truncated === true || isOver,
        info: {
          ...(isOver ? withTimeLimit(transition.info) : transition.info),
          ...(rewards && { rewards }),
          action_is_valid: tally.valid,
          action_is_effective: tally.effective,
          actions: actions.slice(0, done),
          format_penalty: due,
        },
      };
    });
  };
}

/** The references of the environment, their actions written as turns. */
function turnReferences(
  { references = {} }: AnyEnvironment,
  maxActions: number,
  answer: (actions: readonly Json[]) => string,
): NonNullable<AnyEnvironment['references']> {
  const turns = (planned: readonly Json[]): string[] => {
    const texts: string[] = [];
    for (let i = 0; i < planned.length; i += maxActions) texts.push(answer(planned.slice(i, i + maxActions)));
    return texts;
  };
  return Object.fromEntries(
    Object.entries(references).map(([name, policy]) => [
      name,
      {
        title: policy.title,
        plan: (state: Json, count: number, rng: Random) =>
          chain(policy.plan((state as TurnState).inner, count * maxActions, rng), turns),
      },
    ]),
  );
}

/** Does actions in order until the episode ends or `left` are done. */
function play(
  environment: AnyEnvironment,
  actions: readonly Json[],
  left: number,
  rng: Random,
  tally: ActionCount,
): MaybePromise<ActionCount> {
  const { transition, done } = tally;
  if (done >= actions.length || done >= left || transition.terminated || transition.truncated) return tally;
  return chain(environment.step(transition.state, actions[done], rng), next =>
    play(environment, actions, left, rng, {
      transition: next,
      done: done + 1,
      reward: tally.reward + next.reward,
      rewards: sumComponents([{ rewards: tally.rewards }, next.info]),
      effective: tally.effective || next.info.action_is_effective,
      valid: tally.valid && next.info.action_is_valid,
    }),
  );
}
