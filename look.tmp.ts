import { chromium } from 'playwright-core';
import { createApp } from './env-server/app.ts';
const app = await createApp({ logLevel: 'silent' });
await app.server.listen({ host: '127.0.0.1', port: 0 });
const origin = `http://127.0.0.1:${(app.server.server.address() as any).port}`;
const ask = async (m: string, p: string, b?: unknown) => (await fetch(`${origin}/${p}`, { method: m, headers: b ? { 'content-type': 'application/json' } : {}, body: b ? JSON.stringify(b) : undefined })).json().catch(() => undefined) as any;
const b = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
const sizes: any = { w: { width: 1440, height: 900 }, m: { width: 1024, height: 768 }, s: { width: 390, height: 844 } };
const shots = process.argv.slice(2);
const page = await b.newPage();
page.on('pageerror', e => console.log('PAGEERROR', e.message)); page.on('console', m => { if (m.type() === 'error') console.log('CONSOLE', m.text()); });
for (const shot of shots) {
  const [size, scheme, hash, ...acts] = shot.split('|');
  await page.setViewportSize(sizes[size]); await page.emulateMedia({ colorScheme: scheme as any });
  if (hash.startsWith('#/watch')) {
    for (const [env, policy, n] of [['Sokoban-v0','optimal',4],['Game2048-v0','heuristic',9],['FrozenLake-v0','optimal',20],['Sudoku-v0','optimal',3],['RubiksCube-v0','optimal',1],['ALFWorld-v0','oracle',2],['WebShop-v0','oracle',1],['Spatial-v0','random',4],['Countdown-v0','oracle',1],['Bandit-v0','random',1],['Lean-v0','oracle',1]] as any) {
      const s = await ask('POST', 'v1/sessions', { env_id: env, seed: 4 });
      for (let i = 0; i < n; i++) { const { actions } = await ask('POST', `v1/sessions/${s.session_id}/reference`, { policy, count: 1 }); if (!actions?.length) break; await ask('POST', `v1/sessions/${s.session_id}/step`, { action: actions[0] }); }
      if (env === 'FrozenLake-v0' || env === 'Bandit-v0') await fetch(`${origin}/v1/sessions/${s.session_id}`, { method: 'DELETE' });
    }
  }
  await page.goto('about:blank'); await page.goto(`${origin}/${hash}`); await page.waitForTimeout(1500);
  for (const act of acts) { await act.startsWith('click:') ? await page.click(act.slice(6)) : await page.keyboard.press(act); await page.waitForTimeout(350); }
  const name = `/tmp/look-${size}-${scheme}-${hash.replace(/\W+/g, '_')}.png`;
  await page.screenshot({ path: name });
  const below = await page.evaluate(() => { const q = (s: string) => document.querySelector(s)?.getBoundingClientRect().bottom; return { h: innerHeight, controls: q('.controls'), turns: q('.turns'), state: q('.state'), scrollY, over: document.documentElement.scrollWidth - innerWidth, active: document.activeElement?.className }; });
  console.log(name, JSON.stringify(below));
}
await b.close(); await app.server.close(); process.exit(0);
