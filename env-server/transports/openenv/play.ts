import type { Json, JsonObject } from '../../../shared/json.ts';
import { isParts, textOfParts, withoutImages } from '../../../shared/observation-parts.ts';
import type { OpenEnvReply } from '../../custom/remote/openenv-protocol.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { OperationInput } from '../../operations/operation.ts';
import type { CreatedSession, Session, SessionDetail, StepResult } from '../../operations/schemas/session.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { findSession } from '../addressing.ts';
import { floatText } from '../replies/send.ts';
import { type ActionForm, actionForm, type ResetRequest } from './messages.ts';

/** A session as a client of this protocol plays it. */
export interface PlayedSession {
  readonly sessionId: string;
  readonly envId: string;
  readonly form: ActionForm;
  /** The client's own name for the episode. */
  episodeName: string | undefined;
}

/** Reply to reset and step; `metadata` holds fields that the protocol lacks. */
export interface OpenEnvStepReply extends Omit<OpenEnvReply, 'reward'> {
  /** Null when no step was taken. */
  readonly reward: number | null;
  readonly metadata: JsonObject;
}

/** A reply as JSON. */
export function stepReplyText({ observation, reward, done, metadata }: OpenEnvStepReply): string {
  return `{"observation":${JSON.stringify(observation)},"reward":${reward === null ? null : floatText(reward)},"done":${done},"metadata":${JSON.stringify(metadata)}}`;
}

/** The protocol's operations for one client, as operations of the server. */
export class OpenEnvPlay {
  readonly dispatcher: Dispatcher;

  constructor(dispatcher: Dispatcher) {
    this.dispatcher = dispatcher;
  }

  /**
   * Opens a session and begins its first episode.
   * @throws Problem
   */
  open(
    principal: Principal,
    envId: string,
    { input, episodeName }: ResetRequest = { input: {} },
  ): MaybePromise<{ played: PlayedSession; stepReply: OpenEnvStepReply }> {
    const created = this.#operate<CreatedSession>(principal, 'create', { env_id: envId, ...input });
    return chain(created, session => {
      const form = actionForm(this.dispatcher.services.catalog.variant(envId));
      return {
        played: { sessionId: session.session_id, envId, form, episodeName },
        stepReply: afterReset(session),
      };
    });
  }

  /**
   * Continues a session opened over any transport.
   * @throws Problem `unknown_session`, also for a session of another environment
   */
  attach(principal: Principal, envId: string, sessionId: string): MaybePromise<PlayedSession> {
    return chain(findSession(this.dispatcher, principal, sessionId, envId), ({ variant }) => ({
      sessionId,
      envId,
      form: actionForm(variant),
      episodeName: undefined,
    }));
  }

  /** @throws Problem */
  reset(
    principal: Principal,
    played: PlayedSession,
    { input, episodeName }: ResetRequest,
  ): MaybePromise<OpenEnvStepReply> {
    const reset = this.#operate<Session>(principal, 'reset', { session_id: played.sessionId, ...input });
    return chain(reset, session => {
      played.episodeName = episodeName;
      return afterReset(session);
    });
  }

  /** @throws Problem, InvalidMessage */
  step(
    principal: Principal,
    played: PlayedSession,
    fields: JsonObject,
    timeoutMs?: number,
  ): MaybePromise<OpenEnvStepReply> {
    const stepped = this.#operate<StepResult>(principal, 'step', {
      session_id: played.sessionId,
      action: played.form.read(fields),
      ...(timeoutMs !== undefined && { timeout_ms: timeoutMs }),
    });
    return chain(stepped, ({ observation, reward, terminated, truncated, ...rest }) => ({
      observation: observationObject(observation as Json),
      reward,
      done: terminated || truncated,
      metadata: {
        session_id: rest.session_id,
        step: rest.step,
        terminated,
        truncated,
        info: rest.info as JsonObject,
      },
    }));
  }

  /** @throws Problem */
  state(principal: Principal, played: PlayedSession): MaybePromise<JsonObject> {
    const got = this.#operate<SessionDetail>(principal, 'get', { session_id: played.sessionId });
    return chain(got, session => ({
      episode_id: played.episodeName ?? session.episode_id,
      step_count: session.step,
      session_id: session.session_id,
      env_id: session.env_id,
      seed: session.seed,
      return: session.return,
      terminated: session.terminated,
      truncated: session.truncated,
      structured: session.structured as Json,
    }));
  }

  /**
   * The current observation, without a step.
   * @throws Problem
   */
  look(principal: Principal, { sessionId }: PlayedSession): MaybePromise<OpenEnvStepReply> {
    const got = this.#operate<SessionDetail>(principal, 'get', { session_id: sessionId });
    return chain(got, session => ({
      observation: observationObject(session.observation as Json),
      reward: null,
      done: session.terminated || session.truncated,
      metadata: { session_id: session.session_id, seed: session.seed },
    }));
  }

  /** @throws Problem */
  close(principal: Principal, { sessionId }: Pick<PlayedSession, 'sessionId'>): MaybePromise<null> {
    return this.#operate(principal, 'close', { session_id: sessionId });
  }

  #operate<T>(principal: Principal, op: string, input: OperationInput): MaybePromise<T> {
    return this.dispatcher.operate(principal, op, input);
  }
}

function afterReset({ session_id, seed, observation }: Session): OpenEnvStepReply {
  return {
    observation: observationObject(observation as Json),
    reward: 0,
    done: false,
    metadata: { session_id, seed },
  };
}

/** OpenEnv's observations are objects: text is in the field `text`, and parts are in `parts` next to it. */
function observationObject(observation: Json): JsonObject {
  if (isParts(observation)) {
    return { text: withoutImages(textOfParts(observation)), parts: observation as unknown as Json };
  }
  return typeof observation === 'string' ? { text: observation } : (observation as JsonObject);
}
