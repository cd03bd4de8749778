import t from 'tap';
import { browser, openPlayground, PATIENCE_MS, skip } from '../playground/browser.test-data.ts';
import { writeSampleRun } from './sample-runs.test-data.ts';

const MAX_SCRIPT_BYTES = 180_000;
const MAX_REQUESTS = 26;
const MAX_SHIFT = 0.05;
/** Smaller texts are sent as they are, with their headers. */
const MAX_PLAIN_BYTES = 9000;

t.setTimeout(900_000);

t.test('a first visit asks for little, gets it compressed, and nothing moves', { skip }, async t => {
  const runs = t.testdir();
  writeSampleRun(runs, 'lake-1');
  const { origin } = await openPlayground(t, '#/register', { settings: { runs } });
  for (const [path, ready] of [
    ['', '.state .board'],
    ['#/play/TextShop-v0?seed=7', '.state .board'],
    ['#/environments', '.gallery-card .board'],
    ['runs/', 'tbody a'],
    ['runs/#/run/lake-1', '.small-charts canvas'],
    ['runs/#/run/lake-1/episode?file=train-000030&index=1', '.token.amount'],
    ['runs/#/compare?runs=lake-1', 'main h2'],
  ] as const) {
    for (const width of path === '' ? [390, 1280] : [390]) {
      const look = `/${path} at ${width} px`;
      const context = await (await browser()).newContext({ viewport: { width, height: 844 } });
      context.setDefaultTimeout(PATIENCE_MS);
      const page = await context.newPage();
      const session = await context.newCDPSession(page);
      const asked = new Map<string, { type: string; url: string; isPacked: boolean; bytes: number }>();
      session.on('Network.responseReceived', ({ requestId, type, response }) => {
        const isPacked = 'content-encoding' in response.headers;
        asked.set(requestId, { type, url: response.url, isPacked, bytes: 0 });
      });
      session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
        const reply = asked.get(requestId);
        if (reply) reply.bytes = encodedDataLength;
      });
      await session.send('Network.enable');
      await page.addInitScript(() => {
        const shifts = { sum: 0 };
        Object.assign(window, { shifts });
        new PerformanceObserver(list => {
          for (const entry of list.getEntries()) shifts.sum += (entry as unknown as { value: number }).value;
        }).observe({ type: 'layout-shift', buffered: true });
      });
      await page.goto(`${origin}/${path}`);
      await page.locator(ready).first().waitFor();
      await page.evaluate(
        () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))),
      );
      const replies = [...asked.values()];
      const scripts = replies.filter(({ type }) => type === 'Script');
      const bytes = scripts.reduce((sum, reply) => sum + reply.bytes, 0);
      t.comment(`${look}: ${replies.length} requests, ${bytes} bytes of scripts`);
      t.ok(
        scripts.length > 3 && bytes > 20_000 && bytes <= MAX_SCRIPT_BYTES,
        `${look}: ${bytes} bytes of scripts`,
      );
      t.ok(replies.length <= MAX_REQUESTS, `${look}: ${replies.length} requests`);
      t.same(
        replies.filter(reply => !reply.isPacked && reply.bytes > MAX_PLAIN_BYTES && reply.type !== 'Font'),
        [],
        `${look}: replies are compressed`,
      );
      const { sum } = await page.evaluate(() => (window as unknown as { shifts: { sum: number } }).shifts);
      t.ok(sum < MAX_SHIFT, `${look} moves by ${sum}`);
      await context.close();
    }
  }
});
