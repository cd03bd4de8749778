import type { Agent, AgentTurn } from './agent.ts';

/**
 * Answers by a script: full responses, the prime included.
 * @param script the response to a turn; a promise where it takes time
 */
export function scriptedAgent(script: (turn: AgentTurn) => string | Promise<string>): Agent {
  return {
    async respond(turn) {
      const response = await script(turn);
      const text = response.startsWith(turn.prime) ? response.slice(turn.prime.length) : response;
      return { text, rawResponse: response, finishReason: 'stop' };
    },
    release() {},
  };
}
