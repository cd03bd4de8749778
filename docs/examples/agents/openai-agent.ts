/** Plays an environment with OpenAI's npm package: one question a step. */
import OpenAI from 'openai';
import { playEpisodes, step } from './rollouts.ts';

await playEpisodes(async episode => {
  const client = new OpenAI({ baseURL: episode.OPENAI_BASE_URL, apiKey: episode.OPENAI_API_KEY });
  const { observation } = JSON.parse(episode.RAGEN_TASK) as { readonly observation: string };
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: observation }];
  for (;;) {
    const reply = await client.chat.completions.create({ model: 'policy', messages });
    const action = reply.choices[0].message.content?.trim() ?? '';
    const result = await step(episode, action || 'none');
    if (result.terminated || result.truncated) return;
    messages.push({ role: 'assistant', content: action }, { role: 'user', content: result.observation });
  }
});
