// Chats with a served policy through the package openai: node chat.ts http://127.0.0.1:8000
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: 'none' });
const model = (await client.models.list()).data[0].id;
const stream = await client.chat.completions.create({
  model,
  messages: [{ role: 'user', content: 'Which way?' }],
  max_tokens: 16,
  seed: 1,
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
console.log();
