import type { EpisodeReply } from '../../server/reader/trajectories.ts';
import { promptRange } from './tokens.ts';

/**
 * Episodes as OpenAI messages, one line each: `{"messages": [{"role", "content"}, …], "success", "return", …}`. Everything
 * before the first response is one user message, including chat markers in the prompt.
 */
export function chatLines(replies: readonly EpisodeReply[]): string {
  return replies
    .map(({ episode, texts }) => {
      const messages = episode.turns.flatMap((turn, at) => {
        const ids = episode.samples[turn.sample]?.token_ids;
        const [start, end] = promptRange(episode.turns, at);
        const prompt =
          ids && end > start
            ? ids
                .slice(start, end)
                .map(id => texts[id] ?? '')
                .join('')
            : turn.state;
        return [
          { role: 'user', content: prompt },
          { role: 'assistant', content: turn.llm_raw_response },
        ];
      });
      const { env_id, seed, success } = episode;
      return `${JSON.stringify({ messages, env_id, seed, success, return: episode.return })}\n`;
    })
    .join('');
}
