import { join } from 'node:path';
import t from 'tap';
import { checkContract, playing } from '../../../test/environment-contract.test-data.ts';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { splitOf } from '../core/splits.ts';
import { DOCUMENTS, httpRetriever, QUESTIONS } from './retriever.ts';
import { readDocument, readQuestion, searchQa } from './searchqa.ts';

const play = playing(searchQa);
const PINNED = { question: 'Who wrote The Sea?', answers: ['Ida Berg', 'I. Berg'] };

t.test('search, then finish: exact match pays 1, overlap its F1, the rest nothing', async t => {
  const state = await play.reset({}, PINNED);
  const searched = await play.step(state, ' Search[river] ');
  t.match(searched, {
    reward: 0,
    terminated: false,
    info: { action_type: 'search', results: 5, success: false },
  });
  t.match(
    play.text(searched.state),
    /^Question: Who wrote The Sea\?\nResults for "river":\n\[1\] .+\n\[2\] /,
  );
  const outcomes: [string, number, boolean, boolean][] = [
    ['finish[the Ida Berg!]', 1, true, true],
    ['FINISH[Berg]', 2 / 3, true, true],
    ['finish[somebody]', 0, true, false],
    ['finish[]', 0, true, false],
    ['The answer is: Ida Berg.', 1, false, true],
  ];
  for (const [action, reward, valid, success] of outcomes) {
    const result = await play.step(searched.state, action);
    t.equal(result.terminated, true, action);
    t.ok(Math.abs(result.reward - reward) < 1e-12, action);
    const end = reward === 1 ? 'right_answer' : reward > 0 ? 'similar_answer' : 'wrong_answer';
    t.match(result.info, { action_is_valid: valid, success, ended_by: end });
  }
  for (const action of ['', ' ', 'search[ ]', null, 5]) {
    const result = await play.step(state, action);
    t.match(result, {
      reward: 0,
      terminated: false,
      info: { action_is_valid: false, action_is_effective: false },
    });
  }
});

t.test('the shipped questions can be answered from the shipped documents', async t => {
  t.equal(new Set(DOCUMENTS.map(document => document.title)).size, DOCUMENTS.length, 'titles are unique');
  t.equal(new Set(QUESTIONS.map(({ question }) => question)).size, QUESTIONS.length, 'questions are unique');
  const corpus = DOCUMENTS.map(document => document.text).join('\n');
  for (const { question, answers } of QUESTIONS) {
    if (!/^(yes|no)$/.test(answers[0]) && !corpus.includes(answers[0])) t.fail(`${question} ${answers}`);
  }
  for (const split of ['train', 'validation', 'test'] as const) {
    const state = await play.reset({ split }, {}, 3);
    t.equal(splitOf(state.question), split);
  }
});

t.test('hop by hop the answer is found', async t => {
  const { question, answers } = QUESTIONS.find(record =>
    /^In which town was the author/.test(record.question),
  )!;
  const title = /novel (.+) born/.exec(question)![1];
  let state = await play.reset({}, { question, answers: [...answers] });
  state = (await play.step(state, `search[${title}]`)).state;
  const author = new RegExp(`${title} is a novel that (.+?) wrote`).exec(play.text(state))![1];
  state = (await play.step(state, `search[${author}]`)).state;
  const town = new RegExp(`${author} \\(born \\d+\\) was a novelist from (\\w+)`).exec(play.text(state))![1];
  t.match(await play.step(state, `finish[${town}]`), { reward: 1, info: { success: true } });
});

t.test('documents are cut to their lengths', async t => {
  const folder = t.testdir({
    'corpus.jsonl': [1, 2, 3]
      .map(id => JSON.stringify({ id, title: `Fox ${id}`, contents: 'red fox '.repeat(60) }))
      .join('\n'),
    'data.jsonl': '{"question":"Which?","answer":"red"}\n',
    'bad.jsonl': '{"question":"Which?","answer":"red"}\n{"question":"Which?","answer":[]}\n',
  });
  const config = { corpus: join(folder, 'corpus.jsonl'), data: join(folder, 'data.jsonl') };
  const state = await play.reset({ ...config, max_documents: 2, max_document_chars: 50 });
  const { report } = (await play.step(state, 'search[fox]')).state;
  const [, ...lines] = report.split('\n');
  t.same(
    lines.map(line => line.length),
    [55, 55],
  );
  const whole = await play.reset({ ...config, max_result_chars: 100 });
  const cut = (await play.step(whole, 'search[fox]')).state.report;
  t.equal(cut.length, 'Results for "fox":\n'.length + 101);
  await t.rejects(play.reset({ data: join(folder, 'bad.jsonl') }), { message: /row 2: field answer/ });
});

t.test('records of several forms are read', async t => {
  t.same(readQuestion({ question: 'q', ground_truth: ['a', 'b'] }).answers, ['a', 'b']);
  t.same(readQuestion({ question: 'q', answer: 'a', supporting_facts: [] }).answers, ['a']);
  t.throws(() => readQuestion({ question: 'q' }), { name: 'InvalidField', field: 'answer' });
  t.throws(() => readQuestion({ answer: 'a' }), { name: 'InvalidField', field: 'question' });
  t.same(readDocument({ id: 3, title: 'T', text: 'x' }), { id: '3', title: 'T', text: 'T. x' });
  t.throws(() => readDocument({ title: 'T' }), { name: 'InvalidField', field: 'text' });
});

/** A retriever with replies that the test decides; returns its address and the requests it got. */
async function retriever(reply: (query: string) => { status?: number; body?: string; hang?: boolean }) {
  const asked: unknown[] = [];
  const { url } = await serveHttp(t, (request, response, body) => {
    if (request.url === '/health') return response.end('ok');
    const payload = JSON.parse(body);
    asked.push([request.method, request.url, payload]);
    const { status = 200, body: answer = '', hang } = reply(payload.query);
    if (!hang) response.writeHead(status, { 'content-type': 'application/json' }).end(answer);
  });
  return { url, asked };
}

t.test('an HTTP retriever is asked once for each query', async t => {
  const { url, asked } = await retriever(query => ({
    body: JSON.stringify({ results: [{ id: 7, content: `about ${query}`, score: 2 }] }),
  }));
  const state = await play.reset({ retriever: { url } }, PINNED);
  for (let count = 0; count < 2; count++) {
    const { state: next, info } = await play.step(state, 'search[whales]');
    t.equal(next.report, 'Results for "whales":\n[1] about whales');
    t.equal(info.results, 1);
  }
  t.same(asked, [['POST', '/retrieve', { query: 'whales', top_k: 5 }]]);
});

t.test('a retriever that fails is reported, and asked again', async t => {
  const replies = [
    { status: 500 },
    { body: 'not json' },
    { body: '{}' },
    { body: '{"results":[{"id":1}]}' },
    { hang: true },
    { body: '{"results":[]}' },
  ];
  const { url } = await retriever(() => replies.shift() ?? {});
  const waiting = async (timeout_ms: number) => play.reset({ retriever: { url, timeout_ms } }, PINNED);
  const [patient, hasty] = [await waiting(60_000), await waiting(100)];
  const seen: unknown[] = [];
  for (const state of [patient, patient, patient, patient, hasty, patient]) {
    const { reward, terminated, info } = await play.step(state, 'search[x]');
    t.same([reward, terminated], [0, false]);
    seen.push(info.search_failed);
  }
  t.same(seen, [
    'the retriever failed: status 500',
    'the retriever failed: its reply is not JSON',
    'the retriever failed: its reply has no list `results`',
    'the retriever failed: results[0] has no text `content`',
    'the retriever failed: no reply in time',
    undefined,
  ]);
});

t.test('addresses elsewhere, and retrievers that are not there, are refused', async t => {
  const refused = (url: string) =>
    t.rejects(play.reset({ retriever: { url } }, PINNED), {
      name: 'InvalidConfig',
      pointer: '/retriever/url',
    });
  await refused('http://example.com:80');
  await refused('file:///etc/passwd');
  await refused('nonsense');
  await refused('http://127.0.0.1:1');
  process.env.RAGEN_RETRIEVER_HOSTS = 'search.internal';
  t.ok(httpRetriever('http://search.internal/'));
  delete process.env.RAGEN_RETRIEVER_HOSTS;
  await t.rejects(play.reset({ corpus: 'x', retriever: { url: 'http://localhost' } }), {
    pointer: '/retriever',
    name: 'InvalidConfig',
  });
});

t.test('keeps the contract', async t => checkContract(t, searchQa));
