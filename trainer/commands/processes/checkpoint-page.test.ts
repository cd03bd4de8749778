import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import t from 'tap';
import { accessibilityProblems, seeLooks, skip } from '../../../site/playground/browser.test-data.ts';
import { openPage } from '../../dashboard/dashboard.test-data.ts';
import { asked, MAX_MS, TOKEN } from './checkpoints.test-data.ts';

t.test(
  'the page of an episode asks the checkpoint and plays on by it',
  { skip, timeout: MAX_MS },
  async t => {
    const { app, run, place, prompt, checkpoints } = await asked(t);
    const origin = await app.listen({ host: '127.0.0.1', port: 0 });
    const { file, index, turn } = place;
    const page = await openPage(
      t,
      `${origin}/runs/#/run/lake/episode?file=${file}&index=${index}&turn=${turn}`,
    );
    await page.getByText('Ask the checkpoint here').click();
    await page.getByRole('button', { name: 'Sample four responses' }).click();
    await page.getByRole('alert').getByText('needs the token').waitFor();
    await page.locator('input[name=token]').fill(TOKEN);
    await page.getByRole('button', { name: 'Use it' }).click();
    await page.getByText('from the checkpoint of step 2').waitFor({ timeout: MAX_MS });
    t.equal(await page.getByRole('list', { name: 'Sampled responses' }).getByRole('listitem').count(), 4);

    const field = page.getByLabel('Prompt to answer');
    const sample = page.getByRole('button', { name: 'Sample four responses' });
    const whole = await field.inputValue();
    t.equal(whole, await prompt(), 'the field has the prompt of the turn');
    const choice = page.getByRole('combobox', { name: 'Checkpoint' });
    await choice.focus();
    await page.keyboard.press('ArrowDown');
    await page.waitForURL(/checkpoint=1/);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Control+End');
    await page.keyboard.type('Up');
    t.match(page.url(), new RegExp(`turn=${turn}`), 'keys in the field leave the turn');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page
      .getByText(/from the checkpoint of step 1, .*; 1 token of the prompt is new/)
      .waitFor({ timeout: MAX_MS });
    t.equal(await field.inputValue(), `${whole}Up`);
    const command = (name: string) => page.locator('code', { hasText: name }).textContent();
    t.match(await command(' serve '), /checkpoints\/step-000001$/, 'the commands follow the choices');
    t.match(await command('curl -s'), /"prompt":".*Up","max_tokens"/);
    const turns = page.getByRole('group', { name: 'Turns' }).getByRole('button');
    await turns.nth(turn - 1).click();
    await page.getByRole('region', { name: `Turn ${turn}`, exact: true }).waitFor();
    await turns.nth(turn).click();
    await page.getByRole('region', { name: `Turn ${turn + 1}`, exact: true }).waitFor();
    await page.getByText('Ask the checkpoint here').click();
    t.equal(await field.inputValue(), `${whole}Up`, 'a changed prompt is kept while other turns are shown');
    await field.fill('a'.repeat(1_000_000));
    await page.getByText(/the prompt has 1000000 characters, more than/).waitFor();
    t.ok(await sample.isDisabled());
    await page.getByRole('button', { name: 'Undo the changes' }).click();
    t.equal(await field.inputValue(), whole);
    for (let i = 0; i < 20; i++) await choice.selectOption({ index: i % 2 });
    rmSync(join(run.checkpoints, 'step-000001'), { recursive: true });
    await sample.click();
    await page.getByRole('alert').getByText('no checkpoint of step 1 any more').waitFor();
    await choice.locator('option:checked', { hasText: 'step 1, not kept' }).waitFor({ state: 'attached' });
    await choice.selectOption({ index: 0 });
    await sample.click();
    await page.getByText('from the checkpoint of step 2').waitFor({ timeout: MAX_MS });
    t.ok(checkpoints.pids.length <= 1, 'one process after twenty changes');
    const here = page.getByRole('group', { name: 'Branch here' });
    const lane = page.getByRole('region', { name: 'Branch' });
    const taken = lane.locator('.branch-actions li');
    await here.getByRole('button', { name: 'checkpoint' }).click();
    await lane.getByText('played by the checkpoint of step 2').waitFor({ timeout: MAX_MS });
    await taken.first().waitFor();
    await lane.getByRole('button', { name: 'Play on', exact: true }).waitFor();
    t.equal(await lane.getByRole('combobox', { name: 'Let play' }).inputValue(), 'checkpoint');
    t.same(await accessibilityProblems(page), []);
    // A person takes over, and gives it back.
    await here.getByRole('button', { name: 'hand' }).click();
    await lane.getByText('played by hand').waitFor();
    await lane.getByRole('combobox', { name: 'Let play' }).selectOption('checkpoint');
    await lane.getByRole('button', { name: 'Left', exact: true }).click();
    await taken.nth(0).waitFor();
    await lane.getByRole('button', { name: 'One step' }).click();
    await taken.nth(1).waitFor({ timeout: MAX_MS });
    t.equal(await taken.count(), 2);
    await page.getByRole('button', { name: 'Undo', exact: false }).first().click();
    await taken.nth(1).waitFor({ state: 'detached' });
    // A branch that is closed while its checkpoint loads ends it.
    await here.getByRole('button', { name: 'checkpoint' }).click();
    while (checkpoints.pids.length === 0) await pause(10);
    await lane.getByRole('button', { name: 'Close the branch' }).click();
    while (checkpoints.pids.length > 0) await pause(10);
    await here.getByRole('button', { name: 'checkpoint' }).click();
    await taken.first().waitFor({ timeout: MAX_MS });
    await seeLooks(t, page, 'here');
  },
);
