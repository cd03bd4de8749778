import { useLayoutEffect, useMemo, useState } from 'preact/hooks';
import type { SampleRecord, TrajectoryRecord, TurnRecord } from '../../../shared/run-folder/run-files.ts';
import { Board } from '../../boards/board.ts';
import { html } from '../../components/html.ts';
import type { EpisodeReply } from '../../server/reader/trajectories.ts';
import { formatAddress } from '../address.ts';
import { useData } from '../data/hooks.ts';
import { counted, short } from '../format.ts';
import { BranchHere } from './branch.ts';
import { chatLines, saveText } from './chat-export.ts';
import { useNear } from './near.ts';
import { choose, Panel, Select, Status } from './parts.ts';
import type { RunViewProps } from './run-view-props.ts';
import { knownTints, promptRange, type Tint, Tokens, tintScale } from './tokens.ts';

/** Turns that are drawn before the window is known. */
const FIRST_TURNS = 2;

/** One episode, turn by turn. */
export function EpisodeView({ store, address }: RunViewProps) {
  const { file = '', index = '0' } = address.query;
  const { value, error } = useData<EpisodeReply>('episode', { id: store.id, file, index });
  const loaded = value?.file === file && value.index === Number(index) ? value : undefined;
  return html`<div class="episode">
    <${Status} error=${error} loading=${!loaded && !error} />
    ${loaded && html`<${Episode} store=${store} address=${address} reply=${loaded} />`}
  </div>`;
}

function Episode({ store, address, reply }: RunViewProps & { readonly reply: EpisodeReply }) {
  const { episode, texts, file, index, count } = reply;
  const { turns, samples } = episode;
  const last = turns.length - 1;
  const turn = Math.max(0, Math.min(last, Number(address.query.turn) || 0));
  const tints = knownTints(samples[0]);
  const tint = tints.find(name => name === address.query.tint) ?? tints[0];
  const scale = useMemo(() => (tint ? tintScale(tint, samples) : undefined), [tint, samples]);
  const go = (to: number) => choose({ turn: String(Math.max(0, Math.min(last, to))) }, true);
  useArrowKeys(turn, go);
  const other = (to: number) =>
    formatAddress({
      view: 'episode',
      run: store.id,
      query: { file, index: String(to), tint: address.query.tint ?? '' },
    });
  const all = address.query.turns === 'all';
  const shown = all ? turns.map((_, i) => i) : [turn];
  return html`<${Header} episode=${episode} />
    <div class="controls">
      ${index > 0 && html`<a class="button" href=${other(index - 1)}>Episode before</a>`}
      ${index < count - 1 && html`<a class="button" href=${other(index + 1)}>Episode after</a>`}
      ${tints.length > 0 && html`<${Select} label="Tokens tinted by" value=${tint} options=${tints.map(name => [name, name] as const)} onChange=${(value: string) => choose({ tint: value }, true)} />`}
      <label class="check"><input type="checkbox" checked=${all} onChange=${() => choose({ turns: all ? '' : 'all' }, true)} /> all turns</label>
      <button type="button" onClick=${() => saveText(`${episode.tag}-${episode.seed}-${index}.jsonl`, chatLines([reply]))}>Save as messages (JSONL)</button>
    </div>
    ${tint && html`<${TintLegend} tint=${tint} />`}
    ${
      !all &&
      turns.length > 0 &&
      html`<div class="controls turn-controls">
      <button type="button" onClick=${() => go(turn - 1)} disabled=${turn === 0}>← Turn before</button>
      <label class="field grow"><span>Turn ${turn + 1} of ${turns.length}</span>
        <input type="range" min="0" max=${last} value=${turn} onInput=${(event: Event) => go(Number((event.currentTarget as HTMLInputElement).value))} /></label>
      <button type="button" onClick=${() => go(turn + 1)} disabled=${turn === last}>Turn after →</button>
    </div>`
    }
    ${shown.map(at => html`<${TurnPanel} key=${at} store=${store} reply=${reply} at=${at} tint=${tint} scale=${scale} texts=${texts} />`)}
    ${(all || turn === last) && html`<${Panel} title="The end"><${Board} state=${episode.final_structured} text=${episode.final_state} /><//>`}`;
}

function useArrowKeys(turn: number, go: (to: number) => void): void {
  // Before the turn is seen: a key pressed right then is meant for it.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const typing = (event.target as Element).closest?.('input, select, textarea');
      if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key === 'ArrowLeft') go(turn - 1);
      else if (event.key === 'ArrowRight') go(turn + 1);
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  });
}

function Header({ episode }: { readonly episode: TrajectoryRecord }) {
  const { env_id, seed, success, turns, filter, server } = episode;
  return html`<div class="facts">
    <span class="chip ${success ? 'good' : 'bad'}">${success ? 'success' : 'no success'}</span>
    <span>${env_id}, seed ${seed}</span><span>return ${short(episode.return)}</span><span>${counted(turns.length, 'turn')}</span>
    ${filter && html`<span class="chip ${filter.kept ? 'good' : 'warn'}">${filter.kept ? 'kept' : 'dropped'}, score ${short(filter.score)}</span>`}
    <span class="fine">played on ${server}</span>
  </div>`;
}

const LEGENDS: { readonly [tint in Tint]: string } = {
  'log-probability': 'Stronger: the policy was less likely to say this token.',
  entropy: 'Stronger: the policy was less sure what to say here.',
  advantage: 'Green was better than expected and becomes more likely; red was worse.',
  value: 'What the critic expected from here: green good, red bad.',
  return: 'What came of it from here: green good, red bad.',
  'weight version': 'Stronger: sampled by newer weights.',
  'loss mask': 'Colored tokens are trained on.',
};

function TintLegend({ tint }: { readonly tint: Tint }) {
  return html`<p class="fine">${LEGENDS[tint]} Hold the pointer over a token for its numbers.</p>`;
}

interface TurnProps {
  readonly store: RunViewProps['store'];
  readonly reply: EpisodeReply;
  readonly at: number;
  readonly tint?: Tint;
  readonly scale?: (value: number) => number;
  readonly texts: { readonly [id: string]: string };
}

/** A turn; far from the window its board is left out and its response is plain text. */
function TurnPanel({ store, reply, at, tint, scale, texts }: TurnProps) {
  const [place, near] = useNear<HTMLElement>(at < FIRST_TURNS);
  const { episode } = reply;
  const turn = episode.turns[at];
  const sample = episode.samples[turn.sample];
  const known = sample !== undefined && turn.tokens[1] > turn.tokens[0] && Object.keys(texts).length > 0;
  const plain = html`<pre class="plain">${turn.llm_raw_response}</pre>`;
  return html`<section ref=${place} class="panel turn">
    <div class="panel-head"><h2>Turn ${at + 1}</h2><${Rewards} turn=${turn} /><${BranchHere} store=${store} episode=${episode} turn=${at} /></div>
    <div class="turn-body">
      ${near ? html`<${Board} state=${turn.structured} text=${turn.state} />` : html`<div class="board"></div>`}
      <div class="texts">
        ${near && html`<${Prompt} turn=${turn} sample=${known ? sample : undefined} range=${promptRange(episode.turns, at)} texts=${texts} />`}
        <h3>Response</h3>
        ${near && known ? html`<${Tokens} sample=${sample} range=${turn.tokens} texts=${texts} tint=${tint} scale=${scale} />` : plain}
        <p class="fine">Carried out: ${actionsOf(turn)}</p>
      </div>
    </div>
  </section>`;
}

interface PromptProps {
  readonly turn: TurnRecord;
  /** Absent where its tokens are not known. */
  readonly sample?: SampleRecord;
  readonly range: readonly [number, number];
  readonly texts: { readonly [id: string]: string };
}

/** The prompt of a turn, laid out when it is opened. */
function Prompt({ turn, sample, range, texts }: PromptProps) {
  const [open, setOpen] = useState(false);
  const toggled = (event: Event) => setOpen((event.currentTarget as HTMLDetailsElement).open);
  const shown = sample
    ? html`<${Tokens} sample=${sample} range=${range} texts=${texts} />`
    : html`<pre class="plain">${turn.state}</pre>`;
  return html`<details onToggle=${toggled}><summary>Prompt</summary>${open && shown}</details>`;
}

export function actionsOf({ actions }: TurnRecord): string {
  if (actions.length === 0) return 'nothing, no action was valid';
  return actions.map(action => (typeof action === 'string' ? action : JSON.stringify(action))).join(', ');
}

function Rewards({ turn }: { readonly turn: TurnRecord }) {
  return html`<span class="fine">reward ${short(turn.reward)}${turn.penalty < 0 ? `, penalty ${short(turn.penalty)}` : ''}${turn.finish_reason === 'length' ? ', response cut off' : ''}</span>`;
}
