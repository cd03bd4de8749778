import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { PNG } from 'pngjs';
import t from 'tap';
import { createRegistry } from '../../env-server/environments/registry.ts';
import { animation } from './animation.ts';
import { animationPath, animations, staticFigures } from './figures.ts';
import { barPlot, curvePlot } from './plot.ts';

const ROOT = new URL('../../', import.meta.url);
const MAX_FILE_BYTES = 200_000;
const all = createRegistry().list();
/** Those that play alike on every machine. DeepCoder needs a machine that isolates programs. */
const portable = all.filter(environment => !environment.condition);
const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8');

/** A figure with digests of pixels where its pictures are, as machines compress alike pixels differently. */
function withPixels(svg: string): string {
  return svg.replaceAll(/data:image\/png;base64,([A-Za-z0-9+/=]+)/g, (_, data: string) => {
    const { width, height, data: pixels } = PNG.sync.read(Buffer.from(data, 'base64'));
    return `${width}×${height} ${createHash('sha256').update(pixels).digest('hex')}`;
  });
}
/** Names within a figure come from its content, compressed pictures included. */
const anonymous = (svg: string): string => withPixels(svg).replaceAll(/(id="|#)l[a-z0-9]+"/g, '$1l"');

t.test('figures are what their data and environments say; `npm run docs` makes them anew', async t => {
  for (const [path, figure] of [...staticFigures(), ...(await animations(portable))]) {
    t.equal(anonymous(read(path)), anonymous(figure), path);
  }
});

t.test('every environment has an animation, small and for light and dark', async t => {
  const files = readdirSync(new URL('docs/pictures/environments', ROOT)).map(
    name => `docs/pictures/environments/${name}`,
  );
  t.same(files.sort(), all.map(animationPath).sort());
  for (const path of files) {
    const svg = read(path);
    t.ok(svg.length < MAX_FILE_BYTES, `${path}: ${svg.length} bytes`);
    t.match(svg, /prefers-color-scheme: dark/);
    t.match(svg, /@keyframes/);
  }
});

t.test('an animation shows each frame once and the last one longer, with its text escaped', async t => {
  const svg = animation('Test', {
    policy: 'optimal',
    frames: [
      { text: 'a < b & c', structured: null },
      { text: 'end', structured: null, step: { count: 1, action: '"go"', reward: 0.25 } },
    ],
    success: true,
    ended: true,
  });
  t.match(svg, 'a &lt; b &amp; c');
  t.match(svg, 'step 1 · &quot;go&quot; · reward 0.25 · success');
  const delays = [...svg.matchAll(/animation-delay:([\d.]+)s/g)].map(([, delay]) => Number(delay));
  t.same(delays, [0, 0.9, 1.8, 2.7]);
});

t.test('plots place values on their scale', async t => {
  const curve = curvePlot('Curves', [
    {
      name: 'one',
      points: [
        [0, 0],
        [100, 100],
      ],
    },
  ]);
  t.match(curve, 'points="52,316 530,44"');
  const bars = barPlot('Bars', [{ name: 'two', values: [60, 70] }], [50, 80]);
  t.match(bars, '>65.0</text>');
  t.match(bars, /cx="356\.7".*cx="503\.3"/s);
});
