import type { JsonObject } from '../../../shared/json.ts';
import type { OpenEnvCode } from '../../custom/remote/openenv-protocol.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem } from '../../problems.ts';
import { TooManySessions } from '../../sessions/limits/admission.ts';
import { capacityOf } from '../mcp/json-rpc.ts';
import { countable, InvalidMessage, within } from './faults.ts';
import { type OpenEnvMessage, readMessage, readReset, UnknownType } from './messages.ts';
import { type OpenEnvStepReply, type PlayedSession, stepReplyText } from './play.ts';
import { NORMAL, SessionSocket } from './session-socket.ts';
import { SESSION_LOST, takeStep } from './tools.ts';

interface ErrorData {
  readonly code: OpenEnvCode;
  readonly message: string;
  readonly more?: JsonObject;
}

/** One client of `/ws`: OpenEnv's frames. */
export class OpenEnvSocket extends SessionSocket {
  protected answer(text: string, played: PlayedSession): MaybePromise<string | undefined> {
    try {
      const reply = this.#run(readMessage(text), played);
      return reply instanceof Promise ? reply.catch(error => this.#mishap(error)) : reply;
    } catch (error) {
      return this.#mishap(error);
    }
  }

  protected refusal(error: unknown): string {
    this.services.problemHandler.document(error);
    const problem = problemOf(error);
    const { message } = problem;
    if (problem instanceof TooManySessions) {
      return errorFrame({ code: 'CAPACITY_REACHED', message, more: capacityOf(problem) });
    }
    const faulty = problem.status >= 500 && !SESSION_LOST.has(problem.code);
    return errorFrame(
      faulty
        ? { code: 'FACTORY_ERROR', message, more: { factory_name: this.envId } }
        : { code: 'SESSION_ERROR', message },
    );
  }

  protected farewell(message: string): string {
    return errorFrame({ code: 'SESSION_ERROR', message });
  }

  #run(message: OpenEnvMessage, played: PlayedSession): MaybePromise<string | undefined> {
    const { services, principal, envId } = this;
    const { play, mcp } = services;
    switch (message.type) {
      case 'reset':
        return chain(
          within(['data'], played.form.wrapped, () => play.reset(principal, played, readReset(message.data))),
          observationFrame,
        );
      case 'step':
        return chain(
          within(['data'], played.form.wrapped, () => takeStep(services, principal, played, message.data)),
          observationFrame,
        );
      case 'state':
        return chain(play.state(principal, played), data => frame('state', data));
      case 'mcp':
        return mcp
          .answer(message.data, { principal, envId, played, isSocket: true })
          .then(reply => reply && frame('mcp', reply as JsonObject));
      case 'close':
        this.leave();
        this.socket.close(NORMAL);
        return undefined;
    }
  }

  #mishap(error: unknown): string | undefined {
    const { problemHandler } = this.services;
    if (error instanceof UnknownType) {
      problemHandler.document(new Problem('invalid_request', error.message));
      return errorFrame({ code: 'UNKNOWN_TYPE', message: error.message });
    }
    problemHandler.document(countable(error));
    if (error instanceof InvalidMessage) {
      const message = `Invalid message: ${error.message}`;
      return errorFrame({ code: 'VALIDATION_ERROR', message, more: { errors: error.faults } });
    }
    const { code, message } = problemOf(error);
    if (code === 'bad_json') return errorFrame({ code: 'INVALID_JSON', message: `Invalid JSON: ${message}` });
    if (!SESSION_LOST.has(code)) return errorFrame({ code: 'EXECUTION_ERROR', message });
    this.lose(message);
    return undefined;
  }
}

const frame = (type: string, data: JsonObject): string => JSON.stringify({ type, data });

const observationFrame = (stepReply: OpenEnvStepReply): string =>
  `{"type":"observation","data":${stepReplyText(stepReply)}}`;

const errorFrame = ({ message, code, more }: ErrorData): string => frame('error', { message, code, ...more });
