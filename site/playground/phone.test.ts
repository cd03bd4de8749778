import type { Page } from 'playwright-core';
import t from 'tap';
import { figure, openPlayground, overflow, seeBoard, seeFigure, skip } from './browser.test-data.ts';

/** A browser on a busy machine. */
t.setTimeout(900_000);

const context = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };

/** A finger goes over the board. */
async function swipe(page: Page, right: number, down: number): Promise<void> {
  const { x, y, width, height } = (await page.locator('.state').boundingBox())!;
  const client = await page.context().newCDPSession(page);
  const [startX, startY] = [x + width / 2, y + height / 2];
  const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', touchPoints: { x: number; y: number }[]) =>
    client.send('Input.dispatchTouchEvent', { type, touchPoints });
  await touch('touchStart', [{ x: startX, y: startY }]);
  for (const share of [0.5, 1])
    await touch('touchMove', [{ x: startX + share * right, y: startY + share * down }]);
  await touch('touchEnd', []);
}

t.test('a swipe over the board acts, and never scrolls the page; a tap does nothing', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Sokoban-v0?seed=3', { context });
  await seeBoard(page);
  const moves = [
    ['Up', 0, -90],
    ['Down', 0, 90],
    ['Left', -90, 8],
    ['Right', 90, 8],
  ] as const;
  for (const [index, [name, right, down]] of moves.entries()) {
    await swipe(page, right, down);
    await seeFigure(page, 'Step', `${index + 1} of`);
    t.match(await figure(page, 'Action').textContent(), name);
  }
  await swipe(page, 4, 3);
  await swipe(page, 0, -90);
  await seeFigure(page, 'Step', '5 of');
  t.equal(await page.evaluate(() => scrollY), 0);
});

t.test('the ring of the focus lies within the panel of the bandit', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Bandit-v0?seed=3', { context });
  await page.locator('.arm:focus').waitFor();
  const [room, ring] = await page
    .locator('.arm')
    .first()
    .evaluate(arm => {
      const own = arm.getBoundingClientRect();
      const panel = arm.closest('.board-panel')!.getBoundingClientRect();
      const { outlineOffset, outlineWidth } = getComputedStyle(arm);
      return [
        Math.min(own.left - panel.left, own.top - panel.top, panel.bottom - own.bottom),
        Number.parseFloat(outlineOffset) + Number.parseFloat(outlineWidth),
      ];
    });
  t.ok(ring > 0);
  t.ok(room >= ring, `${room} px for a ring of ${ring} px`);
});

t.test('a shop shows a product on a phone before anybody scrolls', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/TextShop-v0?seed=7', { context });
  await page.getByRole('searchbox', { name: 'Search the shop' }).fill('shoes');
  await page.keyboard.press('Enter');
  await page.locator('.shop-results .product').first().waitFor();
  const bottom = (place: string) =>
    page
      .locator(place)
      .first()
      .evaluate(element => element.getBoundingClientRect().bottom);
  const [product, board, turns] = await Promise.all(['.shop-results li', '.state', '.turns'].map(bottom));
  t.ok(product <= board, `the first product ends at ${product} px of a board that ends at ${board} px`);
  t.ok(product < 844, `the first product ends at ${product} px`);
  t.ok(turns < 844, `the buttons below end at ${turns} px`);
});

t.test('cells of a Sudoku are large enough for a finger, and the page is no wider', { skip }, async t => {
  const { page, origin } = await openPlayground(t, '', { context });
  for (const preset of ['9x9-easy', '16x16-easy']) {
    await page.goto(`${origin}/#/play/Sudoku-v0?seed=7&preset=${preset}`);
    const cells = page.locator('.state .sudoku [role="gridcell"]');
    await cells.nth(Number.parseInt(preset, 10) ** 2 - 1).waitFor();
    const { width, height } = (await cells.first().boundingBox())!;
    t.ok(Math.min(width, height) >= 24, `${preset}: ${width} × ${height} px`);
    t.equal(await overflow(page), 0, preset);
  }
});

t.test('a board has the width of a phone, with its four arrows in one row below it', { skip }, async t => {
  const { page } = await openPlayground(t, '#/play/Sokoban-v0?seed=3', { context });
  await seeBoard(page);
  const { width } = (await page.locator('.state .board-svg').boundingBox())!;
  t.ok(width > 320, `${width} px`);
  const boxes = await page
    .locator('.arrows button')
    .evaluateAll(all => all.map(one => one.getBoundingClientRect().y));
  t.equal(boxes.length, 4);
  t.equal(new Set(boxes).size, 1, String(boxes));
});
