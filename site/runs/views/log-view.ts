import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { html } from '../../components/html.ts';
import type { RunViewProps } from './parts.ts';
import { Panel } from './parts.ts';

/** A reader who is this close to the end follows new lines, in pixels. */
const END_PX = 16;

/** The last lines of a run's log. They follow new ones until the reader scrolls up. */
export function LogView({ store }: RunViewProps) {
  const { log, folder } = store.detail!;
  const box = useRef<HTMLDivElement>(null);
  const [isAtEnd, setAtEnd] = useState(true);
  const toEnd = () => box.current?.scrollTo(0, box.current.scrollHeight);
  useLayoutEffect(() => {
    if (isAtEnd) toEnd();
  }, [log, isAtEnd]);
  if (log.length === 0) {
    return html`<p class="hint">No line yet: the trainer writes <code>log.txt</code> into the folder of the run. Runs of earlier versions have none.</p>`;
  }
  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = box.current!;
    setAtEnd(scrollHeight - scrollTop - clientHeight < END_PX);
  };
  const days = new Set(log.map(({ time }) => time.slice(0, 10)));
  const shown = (time: string) => time.slice(days.size > 1 ? 5 : 11, 19).replace('T', ' ');
  const tools = !isAtEnd && html`<button type="button" class="small" onClick=${toEnd}>Go to the end</button>`;
  return html`<${Panel} title="Log" tools=${tools}>
    <div class="code-box" style="max-height: 70dvh" ref=${box} onScroll=${onScroll} tabindex="0" role="region" aria-label="Last lines of the log">
      ${log.map(({ at, time, text }) => html`<div key=${at}><time class="fine" dateTime=${time} title=${time}>${shown(time)}</time> ${text}</div>`)}
    </div>
    <p class="fine">The end of <code>${folder}/log.txt</code>. Times are UTC.</p>
  <//>`;
}
