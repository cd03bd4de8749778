import { renderToString } from 'preact-render-to-string';
import t from 'tap';
import { html } from '../../components/html.ts';
import { PlayOn } from './session-replay.ts';

t.test('an episode is played on by a link, one of too many actions by none', t => {
  const shown = (length: number) =>
    renderToString(html`<${PlayOn} address=${`#/play/${'a'.repeat(length - 7)}`} />`);
  t.match(shown(1_000_000), '<a class="button primary" href="#/play/a');
  t.notMatch(shown(1_000_001), 'href');
  t.match(shown(1_000_001), /choose an earlier step/);
  t.end();
});
