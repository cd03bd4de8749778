import { useEffect, useState } from 'preact/hooks';
import type { Json } from '../../../shared/json.ts';
import { counted } from '../../../shared/text.ts';
import { Board } from '../../boards/board.ts';
import { html } from '../../components/html.ts';
import { ProblemNote } from '../../components/request.ts';
import { useWork } from '../../components/store.ts';
import { withUnit } from '../../components/text.ts';
import type { Environment, EnvironmentSummary, Schemas } from '../../player/wire.ts';
import { type Address, formatAddress } from '../address.ts';
import type { Client } from '../client/client.ts';

const FRAME_MS = 900;
/** The last frame stays this many times as long. */
const LAST_FRAMES = 3;
const PERCENT = 100;

interface EnvironmentsViewProps {
  readonly client: Client;
  /** A new value loads the list again. */
  readonly address: Address;
}

/** All environments of the server: each with an episode of its best policy, its rules, and the results of policies. */
export function EnvironmentsView({ client, address }: EnvironmentsViewProps) {
  const load = async () => {
    const [{ environments }, shown] = await Promise.all([
      client.json<Schemas['EnvironmentList']>('GET', 'v1/envs', { quiet: true }),
      showcases(),
    ]);
    return { environments, shown };
  };
  const { value: loaded, error: problem } = useWork(load, [address]);
  const rules = (envId: string) => client.run<Environment>('get_environment', { env_id: envId });
  return html`<section class="stack gallery" aria-labelledby="gallery-title">
    <h1 id="gallery-title" tabindex="-1">Environments</h1>
    <${ProblemNote} problem=${problem} />
    ${loaded ? html`<${Gallery} ...${loaded} rules=${rules} />` : problem === undefined && html`<p class="hint">Loading the environments …</p>`}
  </section>`;
}

interface GalleryProps {
  readonly environments: readonly EnvironmentSummary[];
  readonly shown: Showcases;
  readonly rules: (envId: string) => Promise<Environment>;
}

function Gallery({ environments, shown, rules }: GalleryProps) {
  const reduced = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const [moving, move] = useState(!reduced);
  return html`
    <div class="row apart">
      <p class="fine">${counted(environments.length, 'environment')} on this server.</p>
      <button type="button" class="small" onClick=${() => move(!moving)}>${moving ? 'Stop the pictures' : 'Let the pictures move'}</button>
    </div>
    <ul class="tiles">
      ${environments.map(
        environment => html`<li key=${environment.env_id}>
          <${EnvironmentCard} environment=${environment} showcase=${shown[environment.env_id]} moving=${moving} rules=${rules} />
        </li>`,
      )}
    </ul>
  `;
}

interface CardProps {
  readonly environment: EnvironmentSummary;
  readonly showcase: Showcase | undefined;
  readonly moving: boolean;
  readonly rules: GalleryProps['rules'];
}

function EnvironmentCard({ environment, showcase, moving, rules }: CardProps) {
  const { env_id: envId, title, tags } = environment;
  const random = showcase?.references.find(({ name }) => name === 'random');
  const best = showcase?.references.find(({ name }) => name !== 'random');
  return html`<article class="card gallery-card">
    <div class="picture" aria-hidden="true" inert>
      ${showcase ? html`<${Replay} showcase=${showcase} moving=${moving} />` : html`<p class="hint empty">A custom environment.</p>`}
    </div>
    <h2>${title}</h2>
    <p class="fine"><code>${envId}</code></p>
    <p class="row tight">${tags.map(tag => html`<span key=${tag} class="chip">${tag}</span>`)}</p>
    ${
      random &&
      best &&
      html`<dl class="facts">
      <div><dt>random</dt><dd>${share(random.success)}</dd></div>
      <div><dt>${best.name}</dt><dd>${share(best.success)}</dd></div>
    </dl>`
    }
    <${Rules} envId=${envId} rules=${rules} />
    <p>
      <a class="button primary" href=${formatAddress({ view: 'play', envId })} aria-label=${`Play ${title}`}>Play</a>
    </p>
  </article>`;
}

const share = (success: number): string => withUnit((PERCENT * success).toFixed(1), '%');

/** An episode, frame by frame; the last frame with reduced motion. */
function Replay({ showcase, moving }: { readonly showcase: Showcase; readonly moving: boolean }) {
  const { frames } = showcase;
  const [tick, setTick] = useState(0);
  useEffect(() => {
    if (!moving) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) setTick(now => (now + 1) % (frames.length + LAST_FRAMES - 1));
    }, FRAME_MS);
    return () => clearInterval(timer);
  }, [moving]);
  const frame = frames[moving ? Math.min(tick, frames.length - 1) : frames.length - 1];
  return html`<${Board} state=${frame.structured} text=${frame.text} />
    <p class="fine code cut">${frame.action ?? 'start'}</p>`;
}

/** The rules, requested when they are expanded. */
function Rules({ envId, rules }: { readonly envId: string; readonly rules: GalleryProps['rules'] }) {
  const [text, show] = useState('Loading …');
  const open = (event: Event) => {
    if (!(event.target as HTMLDetailsElement).open) return;
    rules(envId).then(
      ({ description }) => show(description),
      error => show(error.message),
    );
  };
  return html`<details onToggle=${open}>
    <summary>Rules</summary>
    ${text.split(/\n\s*\n/).map(part => html`<p class="fine">${part.replaceAll('\n', ' ')}</p>`)}
  </details>`;
}

/** A policy's measured results under the default configuration. */
export interface Reference {
  readonly name: string;
  /** Share of episodes that ended in success. */
  readonly success: number;
  readonly mean_return: number;
}

/** A moment of an episode. */
interface ShowcaseFrame {
  readonly structured: Json;
  readonly text: string;
  readonly action?: string;
}

/** Preview of a built-in environment: an episode of its best policy, and the results of policies. */
export interface Showcase {
  readonly references: readonly Reference[];
  readonly policy: string;
  readonly frames: readonly ShowcaseFrame[];
}

export type Showcases = { readonly [envId: string]: Showcase };

let loading: Promise<Showcases> | undefined;

/** The showcases of the built-in environments, made by `npm run docs`; empty where they cannot be loaded. */
function showcases(): Promise<Showcases> {
  loading ??= fetch(new URL('./showcases.json', import.meta.url))
    .then(response => (response.ok ? response.json() : {}))
    .catch(() => {
      loading = undefined;
      return {};
    });
  return loading;
}

/** Policies to compare a return with; empty for an environment without measurements. */
export async function referencesOf(envId: string): Promise<readonly Reference[]> {
  return (await showcases())[envId]?.references ?? [];
}
