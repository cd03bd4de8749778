import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PNG } from 'pngjs';
import t, { type Test } from 'tap';
import { stringify } from 'yaml';
import { resolveConfig } from '../../../env-server/environments/core/settings.ts';
import { sokoban } from '../../../env-server/environments/sokoban/sokoban.ts';
import { Random } from '../../../shared/random.ts';
import { serveHttp } from '../../../test/local-server.test-data.ts';
import { serve } from '../../rollout/server.test-data.ts';
import { tinySettings } from '../../training/runs.test-data.ts';
import { evaluate } from '../evaluate/evaluate.ts';

const MAX_MS = 900_000;
const EPISODES = 6;

type SokobanEnvironment = Parameters<typeof resolveConfig>[0];
const config = resolveConfig(sokoban as unknown as SokobanEnvironment, {
  dim_room: [6, 6],
  num_boxes: 1,
}) as never;
const levelOf = (layout: readonly string[]) =>
  sokoban.reset(config, Random.fromSeed(1), { layout: [...layout] }) as Awaited<
    ReturnType<typeof sokoban.reset>
  >;

type Pixels = Pick<PNG, 'width' | 'height' | 'data'>;

/** A cell of a picture of 6 × 6 cells, as text to compare. */
function cellOf({ width, data }: Pixels, row: number, col: number): string {
  const side = width / 6;
  const rows = Array.from({ length: side }, (_, y) => {
    const start = 4 * ((row * side + y) * width + col * side);
    return Buffer.from(data.subarray(start, start + 4 * side)).toString('latin1');
  });
  return rows.join('');
}

/** Symbols by their look, learned from a picture of a known level. */
function symbolsByLook(): ReadonlyMap<string, string> {
  const looks = new Map<string, string>();
  for (const layout of [
    ['######', '#_OXP#', '#√_X_#', '#____#', '#____#', '######'],
    ['######', '#_OXS#', '#_X__#', '#____#', '#____#', '######'],
  ]) {
    const picture = sokoban.render(levelOf(layout));
    for (const [row, line] of layout.entries()) {
      for (const [col, symbol] of [...line].entries()) {
        looks.set(cellOf(picture as Pixels, row, col), symbol);
      }
    }
  }
  return looks;
}

interface VisionRequest {
  readonly messages: readonly {
    readonly content:
      | string
      | readonly { readonly type: string; readonly image_url?: { readonly url: string } }[];
  }[];
}

/** A vision model behind OpenAI's chat API: it sees the last picture only, and plays by the shortest solution. */
async function visionModel(t: Test) {
  const symbols = symbolsByLook();
  const seen: { readonly parts: readonly string[]; readonly text: boolean }[] = [];
  const { url } = await serveHttp(t, async (_request, response, body) => {
    const { messages }: VisionRequest = JSON.parse(body);
    const { content } = messages.at(-1)!;
    if (typeof content === 'string') {
      seen.push({ parts: [], text: true });
      response.end(JSON.stringify({ choices: [{ message: { content: 'I see nothing' } }] }));
      return;
    }
    seen.push({ parts: content.map(({ type }) => type), text: JSON.stringify(messages).includes('##') });
    const { image_url } = content.findLast(part => part.image_url)!;
    const picture = PNG.sync.read(Buffer.from(image_url!.url.split(',')[1], 'base64'));
    const layout = Array.from({ length: 6 }, (_, row) =>
      Array.from({ length: 6 }, (_, col) => symbols.get(cellOf(picture, row, col)) ?? '?').join(''),
    );
    const plan = await sokoban.references.optimal.plan(await levelOf(layout), 2);
    const answer = `<answer>${plan.join(' || ')}</answer>`;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ choices: [{ message: { content: answer }, finish_reason: 'stop' }] }));
  });
  return { url: `${url}/v1`, seen };
}

t.test('a vision model behind an endpoint plays Sokoban from pictures', { timeout: MAX_MS }, async t => {
  const [server] = (await serve(t)).servers;
  const folder = t.testdir();
  const tag = { env_id: 'Sokoban-v0', config: { preset: 'visual' }, max_turn: 8, max_actions_per_turn: 2 };
  const file = join(folder, 'vision.yaml');
  const settings = tinySettings(server.name, folder, 'vision', {
    tags: { Sokoban: tag },
    train_tags: ['Sokoban'],
    validation: { episodes: EPISODES, temperature: 0 },
  });
  writeFileSync(file, stringify(settings));
  const model = await visionModel(t);
  const output = join(folder, 'out');
  t.capture(console, 'log');
  const place = [`endpoint.url=${model.url}`, 'endpoint.model=eyes', 'rollout.prompt=chat'];
  t.equal(await evaluate(file, place, { policy: ['endpoint'], output, quiet: true }), 0);
  const { rows } = JSON.parse(readFileSync(join(output, 'evaluation.json'), 'utf8')) as {
    rows: { episodes: number; success: number }[];
  };
  t.match(rows, [{ episodes: EPISODES, success: 1 }]);
  t.ok(
    model.seen.every(({ parts, text }) => parts.includes('image_url') && !text),
    'only pictures show the room',
  );
  const kept = readFileSync(join(output, 'endpoint-greedy.jsonl'), 'utf8');
  t.match(kept, /\[image\/png \d+x\d+\]/);
  t.notMatch(kept, /base64/, 'trajectories name pictures and do not keep them');
});
