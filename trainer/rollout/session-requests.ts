import type { Json, JsonObject } from '../../shared/json.ts';
import { isParts, textOfParts } from '../../shared/observation-parts.ts';
import type { Request, Schemas } from '../client/operations.ts';
import type { BatchReply } from '../client/reply.ts';
import { ServerProblem } from '../client/retry.ts';
import type { EnvServer } from '../client/server.ts';

/** Specification that opens a session, and an equal one again. */
export interface SessionSpec {
  readonly environmentId: string;
  /** Decides which servers may play it, where they have weights by tag. */
  readonly tag?: string;
  readonly config: JsonObject;
  readonly options?: JsonObject;
  /** Absent for environments that refuse one. */
  readonly seed?: number;
  /** Seed of all chance after the start; member k of a group has it plus k. Absent: the generator of `seed` continues. */
  readonly dynamicsSeed?: number;
  readonly groupName: string;
  /** States can be copied; otherwise a branch repeats the actions. */
  readonly copyable?: boolean;
  /** Replies name the state. */
  readonly stateKeys?: boolean;
  /** The state is also asked for as plain JSON. */
  readonly record?: boolean;
  /** The valid actions of each state are asked for. */
  readonly validActions?: boolean;
  /** False ends its requests' wait for the service behind the environment; absent: after the wait for a server. */
  readonly mayWait?: (waitedMs: number) => boolean;
  /** Wrappers around the environment, the innermost first. */
  readonly wrappers?: readonly { readonly name: string; readonly options: JsonObject }[];
}

export type StepResult = Schemas['StepResult'];
export type OpenedSession = Pick<
  Schemas['Session'],
  'session_id' | 'episode_id' | 'observation' | 'level_id' | 'state_key'
>;

/** A session on its server. */
export interface SessionAddress {
  readonly server: EnvServer;
  readonly sessionId: string;
}

/** A state as its server reports it, besides the observation. */
interface SeenState {
  /** As plain JSON; undefined unless it is recorded and the server returns it. */
  readonly structured: Json | undefined;
  /** Undefined unless the specification asks for them, and where the environment does not list them. */
  readonly validActions: readonly string[] | undefined;
}

/**
 * Asks for the present state. Where the server rejects the picture, only that is missing.
 * @throws the server's refusal of the valid actions
 */
export async function seeState({ server, sessionId }: SessionAddress, spec: SessionSpec): Promise<SeenState> {
  const { record = false, validActions = false, mayWait } = spec;
  if (!record && !validActions) return { structured: undefined, validActions: undefined };
  const asked = [
    ...(record ? [structuredRequest(server, sessionId)] : []),
    ...(validActions ? [validActionsRequest(server, sessionId)] : []),
  ];
  const replies = await server.batch(asked, mayWait);
  return {
    structured: record ? structuredIn(replies[0]) : undefined,
    validActions: validActions ? validIn(replies.at(-1)!) : undefined,
  };
}

/** Steps that were taken in one batch. */
interface TakenSteps {
  /** Up to the first rejected action, or to the end of the episode. */
  readonly results: readonly StepResult[];
  /** State after each step, where states are recorded. */
  readonly states: readonly (Json | undefined)[];
  /** Actions after the last step; undefined where the episode is over. */
  readonly validActions: readonly string[] | undefined;
}

/**
 * Carries out actions in one batch. After a rejected action the rest of the batch has no effect, because its step
 * numbers are too high.
 * @param done steps taken before these
 */
export async function takeSteps(
  { server, sessionId }: SessionAddress,
  { record, validActions, mayWait }: SessionSpec,
  actions: readonly Json[],
  done: number,
): Promise<TakenSteps> {
  const steps = actions.flatMap((action, i) => {
    const input = { session_id: sessionId, action, expected_step: done + i + 1 };
    const step = server.request('step', input) as Request;
    return record ? [step, structuredRequest(server, sessionId)] : [step];
  });
  const asked = validActions ? [...steps, validActionsRequest(server, sessionId)] : steps;
  const replies = await server.batch(asked, mayWait);
  const results: StepResult[] = [];
  const states: (Json | undefined)[] = [];
  for (let i = 0; i < steps.length; i += record ? 2 : 1) {
    const reply = replies[i];
    if (reply instanceof ServerProblem && reply.code === 'invalid_action') break;
    if (reply instanceof Error) throw reply;
    const result = reply as StepResult;
    results.push(result);
    if (record) states.push(structuredIn(replies[i + 1]));
    if (result.terminated || result.truncated) return { results, states, validActions: undefined };
  }
  return { results, states, validActions: validActions ? validIn(replies[steps.length]) : undefined };
}

function structuredRequest(server: EnvServer, sessionId: string): Request {
  return server.request('render', { session_id: sessionId, mode: 'structured' }) as Request;
}

function validActionsRequest(server: EnvServer, sessionId: string): Request {
  return server.request('valid_actions', { session_id: sessionId }) as Request;
}

/** Specification of one member of a group, opened alone. */
export function memberSpec(spec: SessionSpec, member: number): SessionSpec {
  return spec.dynamicsSeed === undefined ? spec : { ...spec, dynamicsSeed: spec.dynamicsSeed + member };
}

export function createInput(spec: SessionSpec) {
  return {
    env_id: spec.environmentId,
    config: spec.config,
    group_id: spec.groupName,
    ...(spec.options ? { options: spec.options } : {}),
    ...(spec.wrappers ? { wrappers: [...spec.wrappers] } : {}),
    ...(spec.seed === undefined ? {} : { seed: spec.seed }),
    ...(spec.dynamicsSeed === undefined ? {} : { dynamics_seed: spec.dynamicsSeed }),
    ...(spec.stateKeys ? { state_key: true } : {}),
  };
}

/** @throws the server's refusal */
function validIn(reply: BatchReply): readonly string[] | undefined {
  if (reply instanceof Error) throw reply;
  return ((reply as Schemas['ValidActions']).valid_actions ?? undefined) as readonly string[] | undefined;
}

function structuredIn(reply: BatchReply): Json | undefined {
  return reply instanceof Error ? undefined : ((reply as Schemas['Rendering']).structured as Json);
}

/**
 * An observation as text. Pictures in its parts become `data:` URLs, which endpoints of vision models receive as
 * pictures.
 */
export function observationText(observation: Schemas['Observation']): string {
  if (isParts(observation)) return textOfParts(observation);
  return typeof observation === 'string' ? observation : JSON.stringify(observation);
}
