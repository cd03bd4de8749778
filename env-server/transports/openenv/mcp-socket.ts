import { problemOf } from '../../operations/dispatch/problem-of.ts';
import { RpcError, rpcFailure } from '../mcp/json-rpc.ts';
import type { PlayedSession } from './play.ts';
import { SessionSocket } from './session-socket.ts';

/** One client of `/mcp` over a WebSocket: each frame a message of JSON-RPC or a batch of them. */
export class McpSocket extends SessionSocket {
  protected answer(text: string, played: PlayedSession): Promise<string | undefined> {
    const { principal, envId, services } = this;
    return services.mcp.answerText(text, { principal, envId, played, isSocket: true });
  }

  protected refusal(error: unknown): string {
    const { message, data } = this.services.mcp.errorOf(error);
    return failure(message, data ?? { code: problemOf(error).code });
  }

  protected farewell(message: string): string {
    return failure(message);
  }
}

const failure = (message: string, data?: RpcError['data']): string =>
  JSON.stringify(rpcFailure(null, new RpcError('serverError', message, data)));
