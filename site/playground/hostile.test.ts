import t from 'tap';
import { openPlayground, overflow, seeBoardOf, seeFigure, skip } from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

/** States that look like those of a board at first, and are none. */
const STATES = [
  '{ rows: 1e9, cols: 1e9, walls: [], targets: [], boxes: [], player: [0, 0] }',
  '{ rows: 4, cols: 4, walls: "no list", targets: {}, boxes: 7, player: null }',
  '{ rows: 4, cols: 4, start: 0, goal: 0, player: 0, holes: 0, status: {} }',
  '{ room: { size: 1e9, things: [] }, position: {}, facing: "up", choices: [] }',
  '{ size: 1e9, puzzle: [], grid: [] }',
  '{ size: 4, puzzle: 3, grid: "x" }',
  '{ grid: Array.from({ length: 5000 }, () => []), score: 0, valid_moves: [] }',
  '{ stickers: 5, faces: null }',
  '{ statement: {}, starter: "", outcome: { passed: 0, total: 1e12, failure: [] } }',
  '{ statement: 1, tactics: {}, feedback: { status: [], messages: "m" } }',
  '{ instruction: "i", where: { page: "item" }, segments: [], actions: [] }',
  '{ task: null, room: 1, at: 1, carries: 1, receptacles: 4, admissible: "x" }',
  '{ arms: [{}, null], pulled: 3 }',
  '{ question: { a: 1 }, choices: 4, given: true }',
];
const OVERRIDE = '\u202e';

const SOURCE = `
const STATES = [${STATES.join(',\n')}];
function reset(config) { return { ...STATES[config.shape], turn: 0 }; }
function step(state, action) {
  const turn = state.turn + 1;
  const info = { success: false, ended_by: '<b>${OVERRIDE}gnol</b>', failed_tests: Array.from({ length: 5000 }, (_, i) => i) };
  return { state: { ...state, turn }, reward: action === 'nan' ? NaN : 1, terminated: action === 'end', info };
}
function observe() { return '<img src=x onerror="throw 1"><script>throw 2</script>${OVERRIDE}' + 'x'.repeat(200000); }`;

t.test(
  'an environment with broken states, markup and endless texts leaves the page usable',
  { skip },
  async t => {
    const { page, ask, origin } = await openPlayground(t, '#/environments');
    const title = `<i>Bad</i> ${OVERRIDE}eman`;
    const reply = await ask<{ env_id?: string }>('POST', 'v1/envs', {
      env_id: 'bad/Bad-v0',
      definition: {
        kind: 'script',
        title,
        instruction: `<script>throw 3</script>${OVERRIDE}${'y'.repeat(5000)}`,
        action_space: { type: 'Text', max_length: 1000 },
        example_action: 'go',
        observation_max_length: 1_000_000,
        config_schema: {
          type: 'object',
          properties: { shape: { type: 'integer', minimum: 0, maximum: STATES.length - 1, default: 0 } },
        },
        source: SOURCE,
      },
    });
    t.equal(reply.env_id, 'bad/Bad-v0', JSON.stringify(reply).slice(0, 1000));
    for (const shape of STATES.keys()) {
      await page.goto(`${origin}/#/play/${encodeURIComponent('bad/Bad-v0')}?config={"shape":${shape}}`);
      await seeBoardOf(page, 'bad/Bad-v0');
      const field = page.getByRole('textbox', { name: 'Action', exact: true });
      await field.fill('go');
      await field.press('Enter');
      await seeFigure(page, 'Step', '1 of');
      t.equal(await overflow(page), 0, `${STATES[shape]}: no scrolling sideways`);
    }
    t.equal(await page.getByRole('heading', { level: 1 }).textContent(), title, 'markup is text');
    const shown = await page.locator('.state').textContent();
    t.ok(shown!.length < 150_000, `${shown!.length} characters of the board`);
    const field = page.getByRole('textbox', { name: 'Action', exact: true });
    await field.fill('end');
    await field.press('Enter');
    const banner = page.getByRole('group', { name: 'End of the episode' });
    t.match(await banner.textContent(), /^<b>.*gnol<\/b>/);
    t.ok((await banner.textContent())!.length < 1000, 'the banner names some of the tests');
    await banner.getByRole('button', { name: 'Play again' }).click();
    await seeFigure(page, 'Step', '0 of');
    await field.fill('nan');
    await field.press('Enter');
    await page.locator('.play .problem').waitFor();
    await page.goto(`${origin}/#/watch`);
    await page.locator('.card').first().waitFor();
    await page.locator('.card a').first().click();
    await page.locator('.replay .figures').waitFor();
  },
);

t.test('ten thousand actions are chosen from a list', { skip }, async t => {
  const { page, ask, origin } = await openPlayground(t, '#/environments');
  const names = Array.from({ length: 10_000 }, (_, index) => `action ${index}`);
  const reply = await ask<{ env_id?: string }>('POST', 'v1/envs', {
    env_id: 'bad/Many-v0',
    definition: {
      kind: 'script',
      title: 'Many',
      instruction: 'Choose.',
      action_space: { type: 'Discrete', names },
      example_action: names[0],
      source: `function reset() { return {}; }
function step(state) { return { state, reward: 0, terminated: false, info: {} }; }
function observe() { return 'Choose.'; }`,
    },
  });
  t.equal(reply.env_id, 'bad/Many-v0', JSON.stringify(reply).slice(0, 1000));
  await page.goto(`${origin}/#/play/${encodeURIComponent('bad/Many-v0')}`);
  await seeBoardOf(page, 'bad/Many-v0');
  const field = page.getByRole('combobox', { name: 'Action' });
  await field.fill('action 9999');
  await field.press('Enter');
  await seeFigure(page, 'Action', 'action 9999');
});
