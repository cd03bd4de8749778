/**
 * Two roles, one policy: a planner says what it would do, an actor does something. Their prompts differ, so each role gives
 * a training sample; both have the episode's return.
 */
import OpenAI from 'openai';
import { playEpisodes, step } from './rollouts.ts';

await playEpisodes(async episode => {
  const client = new OpenAI({ baseURL: episode.OPENAI_BASE_URL, apiKey: episode.OPENAI_API_KEY });
  const ask = async (role: string, content: string): Promise<string> => {
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: 'system', content: role },
      { role: 'user', content },
    ];
    const reply = await client.chat.completions.create({ model: 'policy', messages });
    return reply.choices[0].message.content?.trim() ?? '';
  };
  const { observation } = JSON.parse(episode.RAGEN_TASK) as { readonly observation: string };
  const plan = await ask('plan', observation);
  const action = await ask('act', `${observation}\n${plan}`);
  await step(episode, action || 'none');
});
