import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { CopyButton } from '../../components/buttons.ts';
import { html } from '../../components/html.ts';
import { useEvent } from '../../components/store.ts';
import { readableReply, withUnit } from '../../components/text.ts';
import { type Client, codeLine, LANGUAGES, type Language, preamble } from '../client/client.ts';

/** Characters shown of a reply. */
const MAX_SHOWN_LENGTH = 20_000;
/** Kept when the visitor opens another view. */
let chosen: Language = 'curl';

/** The visitor's actions as a program in the chosen language, with the last reply. */
export function RequestLog({ client }: { readonly client: Client }) {
  useEvent(client, 'exchange');
  const [language, setLanguage] = useState(chosen);
  const code = useRef<HTMLElement>(null);
  const scroller = useRef<HTMLPreElement>(null);
  const { exchanges } = client;
  const { origin } = location;
  const authorized = exchanges.some(({ request }) => request.authorized);
  const lines = exchanges.map(({ request }) => codeLine(language, request, origin));
  const program =
    lines.length === 0 ? '' : [preamble(language, origin, authorized), ...lines].filter(Boolean).join('\n');
  useLayoutEffect(() => {
    scroller.current!.scrollTop = scroller.current!.scrollHeight;
  }, [program]);
  const choose = (name: Language) => {
    chosen = name;
    setLanguage(name);
  };
  const last = exchanges.at(-1);
  return html`<section class="panel exchange" aria-labelledby="exchange-title">
    <div class="panel-head"><h2 id="exchange-title">What was done</h2><${CopyButton} source=${code} what="the program" /></div>
    <div class="row tight" role="group" aria-label="Language">${LANGUAGES.map(
      name =>
        html`<button key=${name} type="button" class="quiet small" aria-pressed=${String(name === language)}
          onClick=${() => choose(name)}>${name}</button>`,
    )}</div>
    <pre ref=${scroller} class="code-log" hidden=${program === ''} tabindex="0" role="region" aria-label="What was done, as a program"><code ref=${code}>${program}</code></pre>
    <p class="fine">${
      last
        ? html`<span class="chip ${last.status < 400 ? 'good' : 'bad'}">${last.status}</span>${` ${last.request.method} ${new URL(last.request.url).pathname} · ${withUnit(Math.round(last.milliseconds), 'ms')}`}`
        : 'The requests of this page appear here.'
    }</p>
    <pre class="reply" hidden=${!last} tabindex="0" role="region" aria-label="Reply of the server">${last && readableReply(last.reply, MAX_SHOWN_LENGTH)}</pre>
  </section>`;
}
