import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import { createRegistry } from '../../env-server/environments/registry.ts';
import { animation } from './animation.ts';
import { animationPath, animations, staticFigures } from './figures.ts';
import { curvePlot } from './plot.ts';

const ROOT = new URL('../../', import.meta.url);
const MAX_FILE_BYTES = 200_000;
const all = createRegistry().list();
/** Those that play alike on every machine. DeepCoder needs a machine that isolates programs. */
const portable = all.filter(environment => !environment.condition);
const read = (path: string): string => readFileSync(new URL(path, ROOT), 'utf8');

t.test('figures follow their data and environments; `npm run docs` writes them', async t => {
  for (const [path, figure] of [...staticFigures(), ...(await animations(portable))]) {
    t.equal(read(path), figure, path);
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
    t.notMatch(
      svg,
      /data:image|light-dark|<\w+(\s[\w:-]+="[^"]*")*\s[\w-]+[\s>]/,
      `${path}: drawn, and well-formed`,
    );
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
  t.same(delays, [0, 0.9]);
  t.match(svg, 'animation-delay:0.9s;animation-name:f3');
  t.match(svg, '@keyframes f3 { 0% { opacity: 1 } 75% { opacity: 0 } }');
});

t.test('an animation has the style of its boards alone, for both color schemes', async t => {
  const structured = {
    rows: 1,
    cols: 2,
    start: [0, 0],
    goal: [0, 1],
    player: [0, 0],
    holes: [],
    status: 'playing',
  };
  const svg = animation('Lake', {
    policy: 'optimal',
    frames: [{ text: 'PG', structured }],
    success: false,
    ended: false,
  });
  t.match(svg, /<svg x="16" y="40" width="400" height="200" class="board-svg frozen-lake"/);
  t.match(svg, /--ice: #deedf7.*prefers-color-scheme: dark.*--ice: #2b4152/s);
  t.notMatch(svg, /\.crate|\.tile|var\(--accent\)/);
});

t.test('lists of boards have no marks', async t => {
  const svg = read('docs/pictures/environments/countdown.svg');
  t.match(svg, '<ul class');
  t.match(svg, /ul\[class\]\) \{[^}]*list-style: none/);
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
  const high = curvePlot('Curves', [
    {
      name: 'one',
      points: [
        [0, 68],
        [100, 80],
      ],
    },
  ]);
  t.match(high, 'points="52,261.6 530,180"', 'an axis from 60 % on');
  t.notMatch(high, '>50 %<');
  const perfect = curvePlot('Curves', [{ name: 'one', points: [[0, 100]] }]);
  t.match(perfect, 'points="52,44"', 'nothing but successes');
  t.match(curvePlot('Curves', []), '>80 %<', 'no curve');
  for (const [last, step] of [
    [7, 1],
    [520, 100],
    [8_000, 1_000],
    [30_086, 5_000],
    [86_538, 20_000],
    [2_000_000, 500_000],
  ]) {
    const long = curvePlot('Curves', [{ name: 'one', points: [[last, 50]] }]);
    const labels = [...long.matchAll(/>(\d+)<\/text>/g)].map(([, text]) => Number(text));
    t.same(
      labels,
      Array.from({ length: 1 + Math.floor(last / step) }, (_, i) => i * step),
    );
  }
});
