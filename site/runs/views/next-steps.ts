import { shellWord } from '../../../shared/shell-word.ts';
import { Command } from '../../components/copy-button.ts';
import { html } from '../../components/html.ts';
import type { RunDetail } from '../../server/reader/run-reader.ts';
import { formatAddress } from '../address.ts';
import { useSource } from '../data/hooks.ts';
import { Panel } from './parts.ts';

/** Default address of `init`. */
const DEFAULT_SERVER = 'http://127.0.0.1:8080';
const COMPLETION = `curl -s http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d '{"prompt":"Which way?","max_tokens":16}'`;

/** Next steps after a finished run: commands to paste, and links. */
export function NextSteps({ detail }: { readonly detail: RunDetail }) {
  const { row, folder } = detail;
  const { server, trainer, exported } = useSource().site;
  if (row.state !== 'finished' || exported) return null;
  const { tags } = row.run;
  const url = server === null ? undefined : new URL(server, location.href).href.replace(/\/$/, '');
  const players = ['checkpoint', ...(tags.every(({ random }) => random !== null) ? ['random'] : [])];
  if (tags.every(({ optimum }) => optimum !== null)) players.push('optimal');
  const evaluate = [
    `${trainer} evaluate ${folder}`,
    ...players.map(player => `--policy ${player}`),
    ...(url === undefined || knows(detail, url) ? [] : [shellWord(`servers=[${url}]`)]),
  ].join(' ');
  const init = `${trainer} init me/GuessTen-v0${url === undefined || url === DEFAULT_SERVER ? '' : ` --servers ${shellWord(url)}`}`;
  return html`<${Panel} title="What to do next">
    <div class="stack">
      <section>
        <p><b>Evaluate it</b>${url === undefined && ' with an environment server running'}: a row of the <a href=${formatAddress({ view: 'leaderboard' })}>leaderboard</a></p>
        <${Command} text=${evaluate} />
      </section>
      <section>
        <p><b>Serve it</b> to any OpenAI client</p>
        <${Command} text=${`${trainer} serve ${folder}`} />
      </section>
      <p><a href=${formatAddress({ view: 'replay', run: row.id })}>See one level at every validation</a>${
        server !== null &&
        html`, or play ${[...new Set(tags.map(tag => tag.env_id))].map(
          (id, i) =>
            html`${i > 0 && ', '}<a key=${id} href=${`${server}#/play/${encodeURIComponent(id)}`}>${id}</a>`,
        )} yourself`
      }</p>
      <details>
        <summary>Ask it in another terminal</summary>
        <${Command} text=${COMPLETION} />
      </details>
      <details>
        <summary>Train on an environment of your own</summary>
        <p><code>docs/tutorial/learning-curve.md</code> shows one of 20 lines in Python, as a script and in TypeScript${server !== null && html`; you can <a href=${`${server}#/register`}>register</a> one here, too`}. Then let the trainer choose the settings.</p>
        <${Command} text=${init} />
        <${Command} text=${`${trainer} train GuessTen-v0.yaml`} />
      </details>
    </div>
  <//>`;
}

/** @returns true where the settings of the run name this server */
function knows({ config }: RunDetail, url: string): boolean {
  const { servers } = (config ?? {}) as { readonly servers?: readonly { readonly url?: unknown }[] };
  return Array.isArray(servers) && servers.some(server => server?.url === url);
}
