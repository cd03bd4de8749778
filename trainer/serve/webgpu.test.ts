import t from 'tap';
import { WebGpuRuntime } from '../tensor/runtime/webgpu/webgpu-runtime.ts';
import { goldenFolder, startServer } from './serve.test-data.ts';

const found = await WebGpuRuntime.open();
await found?.close();
const onGpu = { skip: found === null ? 'no GPU here that Dawn can use' : false };

t.test('a server on WebGPU gives the responses of one on ONNX Runtime', onGpu, async t => {
  const folder = goldenFolder('qwen2-tiny');
  const gpu = await startServer(t, folder, { policy: { runtime: 'webgpu', maxSequenceLength: 96 } });
  const cpu = await startServer(t, folder, { policy: { workers: 1, maxSequenceLength: 96 } });
  t.match(gpu.models.base.policy.description, /^WebGPU/);
  const ids = { prompt: [5, 9, 17], max_tokens: 12, ignore_eos: true, return_token_ids: true, seed: 3 };
  const schema = { type: 'object', properties: { go: { enum: ['Up', 'Down'] } }, required: ['go'] };
  const requests: Record<string, unknown>[] = [
    { ...ids, temperature: 0 },
    { ...ids, temperature: 0.8, min_p: 0.05, logprobs: 0 },
    { ...ids, repetition_penalty: 2, frequency_penalty: 0.5, logit_bias: { 30: 2 }, logprobs: 3 },
    { ...ids, max_tokens: 40, response_format: { type: 'json_schema', json_schema: { schema } } },
  ];
  const answers = (server: typeof gpu) =>
    Promise.all(requests.map(body => server.request('POST', '/v1/completions', body)));
  const [given, wanted] = [await answers(gpu), await answers(cpu)];
  given.forEach(({ status, body }, i) => {
    t.equal(status, 200, JSON.stringify(body.error));
    const [own, other] = [body.choices[0], wanted[i].body.choices[0]];
    t.same(own.token_ids, other.token_ids, JSON.stringify(requests[i]));
    own.logprobs?.token_logprobs.forEach((logProb: number, at: number) => {
      t.ok(Math.abs(logProb - other.logprobs.token_logprobs[at]) < 1e-4, `log-probability ${at} of ${i}`);
    });
    t.same(own.logprobs?.top_logprobs.map(Object.keys), other.logprobs?.top_logprobs.map(Object.keys));
  });
  t.ok(['Up', 'Down'].includes(JSON.parse(given[3].body.choices[0].text).go));
  let text = '';
  const stream = await gpu.client.completions.create({ model: 'base', ...ids, temperature: 0, stream: true });
  for await (const { choices } of stream) text += choices[0].text;
  t.equal(text, given[0].body.choices[0].text);
});
