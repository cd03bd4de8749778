import type { Json } from '../../../shared/json.ts';
import { remembered } from '../../../shared/remembered.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { isEndName } from '../../../shared/step-info.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { inScheduledSlices } from '../../environments/core/slices.ts';
import type { EpisodeState } from '../../sessions/episodes/episode.ts';
import type { LiveEpisode } from '../../sessions/episodes/live-episode.ts';
import type { FinishedSession } from '../../sessions/finished-sessions.ts';
import { sizeOf } from '../../sessions/limits/budgets.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Session } from '../../sessions/session.ts';
import type { Services } from '../operation.ts';
import type { SessionCard } from '../schemas/session.ts';

/** Open sessions counted for one reply, newest first; filters look at no more. */
const MAX_COUNTED = 10_000;
/** Cards made before other work gets a turn on the event loop. */
const CARDS_AT_A_TIME = 10;
/** Estimated memory of a state, in bytes, above which its card has only text. */
const LARGEST_STATE = 16 * 1024;
/** Longest text or action on a card, in characters. */
const LONGEST_TEXT = 2000;
/** Prefix of an observation that is a picture. */
const PICTURE = 'data:image/';

/** Filter of a watcher. */
export interface CardFilter {
  readonly env_id?: string;
  readonly group_id?: string;
  readonly client?: string;
}

/** Request of a watcher. */
export interface CardQuestion {
  readonly principal: Principal;
  readonly filter: CardFilter;
  /** Most open and most ended sessions. */
  readonly limit: number;
  /** Newest open sessions to skip. */
  readonly offset?: number;
  /**
   * Only sessions used or ended within this many milliseconds get a card; the others get only their id. Absent: all get
   * cards.
   */
  readonly withinMs?: number;
}

/** The cards of a page, and how many open sessions match the filter, at most {@link MAX_COUNTED}. */
export interface Cards {
  readonly entries: readonly CardEntry[];
  readonly open: number;
}

/** A session in a reply: its card, or only id and version where nothing has changed. */
interface CardEntry {
  readonly serial: number;
  readonly id: string;
  /** Changes with everything that the card shows. */
  readonly version: string;
  readonly ended: boolean;
  readonly card?: SessionCard;
}

/** Cards for a watcher: newest open sessions first, then the most recently ended ones known to this server. */
export function cardsOf(services: Services, question: CardQuestion): MaybePromise<Cards> {
  const { sessions, shared } = services;
  const { principal, limit } = question;
  const newest: MaybePromise<Iterable<Session>> = shared
    ? shared.seen.newest(principal, (question.offset ?? 0) + limit)
    : sessions.newestFirst(principal);
  return chain(newest, open => inScheduledSlices(partsOfCards(services, open, question)));
}

function* partsOfCards(
  { sessions }: Services,
  open: Iterable<Session>,
  { principal, filter, limit, offset = 0, withinMs = Number.POSITIVE_INFINITY }: CardQuestion,
): Sliced<Cards> {
  const since = sessions.now() - withinMs;
  const entries: CardEntry[] = [];
  let [looked, fitting] = [0, 0];
  for (const session of open) {
    if (++looked > MAX_COUNTED) break;
    if (!fits(session, filter)) continue;
    if (fitting++ < offset || entries.length >= limit) continue;
    const changed = session.busy || session.usedAt >= since;
    entries.push({
      serial: session.serial,
      id: session.id,
      version: `${session.episode.id} ${session.episode.stepCount}`,
      ended: false,
      ...(changed && { card: openCard(session) }),
    });
    if (entries.length % CARDS_AT_A_TIME === 0) yield;
  }
  let ended = 0;
  for (const session of sessions.finished(principal)) {
    if (ended >= limit) break;
    if (!fits(session, filter)) continue;
    ended++;
    entries.push({
      serial: session.serial,
      id: session.id,
      version: session.ending,
      ended: true,
      ...(session.endedAt >= since && { card: finishedCard(session) }),
    });
    if (entries.length % CARDS_AT_A_TIME === 0) yield;
  }
  return { entries, open: fitting };
}

function fits(
  { variant, groupId, owner }: Pick<Session, 'variant' | 'groupId' | 'owner'>,
  { env_id, group_id, client }: CardFilter,
): boolean {
  return (
    (env_id === undefined || variant.environment.spec.id === env_id) &&
    (group_id === undefined || groupId === group_id) &&
    (client === undefined || owner === client)
  );
}

/** Cards by episode and step: several watchers share the cost of one. */
const made = new WeakMap<LiveEpisode, { readonly step: number; readonly card: SessionCard }>();
const texts = new WeakMap<SessionCard, string>();

interface StateView {
  readonly text: string;
  readonly structured?: Json;
}

/** A card as JSON, written once for all watchers. */
export function cardText(card: SessionCard): string {
  return remembered(texts, card, () => JSON.stringify(card));
}

function openCard(session: Session): SessionCard {
  const { id, groupId, owner, variant, seed, episode, createdAt } = session;
  const known = made.get(episode);
  if (known?.step === episode.stepCount) return known.card;
  const described = { id, groupId, owner, variant, seed, createdAt, episodeId: episode.id };
  const view = viewOf(format => episode.observe(format));
  const card = cardOf(described, episode, { ...view, action: episode.lastAction, ended: null });
  made.set(episode, { step: episode.stepCount, card });
  return card;
}

function finishedCard(session: FinishedSession): SessionCard {
  const { episode, variant, lastAction, ending } = session;
  const view = viewOf(format => variant.environment.observe(episode.state, format));
  const figures = { ...episode, stepCount: episode.step, maxSteps: variant.stepsOf(episode.state) };
  return cardOf(session, figures, { ...view, action: lastAction, ended: ending });
}

type CardSession = Pick<
  FinishedSession,
  'id' | 'groupId' | 'owner' | 'variant' | 'seed' | 'createdAt' | 'episodeId'
>;
type Figures = Pick<EpisodeState, 'totalReward' | 'terminated' | 'truncated' | 'failed' | 'info'> & {
  readonly stepCount: number;
  readonly maxSteps: number;
};
type CardState = StateView & { readonly action: Json | undefined; readonly ended: SessionCard['ended'] };

function cardOf(session: CardSession, episode: Figures, state: CardState): SessionCard {
  const { id, groupId, owner, variant, seed, createdAt, episodeId } = session;
  const { maxSteps } = episode;
  const { text, structured, action, ended } = state;
  const isOver = episode.terminated || episode.truncated;
  return {
    session_id: id,
    env_id: variant.environment.spec.id,
    group_id: groupId,
    client: owner,
    episode_id: episodeId,
    seed,
    step: episode.stepCount,
    max_episode_steps: maxSteps,
    return: episode.totalReward,
    terminated: episode.terminated,
    truncated: episode.truncated,
    failed: episode.failed,
    success: episode.info.success === true,
    ...(isOver && isEndName(episode.info.ended_by) && { ended_by: episode.info.ended_by }),
    ...(action !== undefined && { action: shortAction(action) }),
    text,
    ...(structured !== undefined && { structured }),
    created_at: new Date(createdAt).toISOString(),
    ended,
  };
}

/** A state that cannot be rendered still has a card: one environment must not break watching. */
function viewOf(observe: (format: 'text' | 'structured') => Json): StateView {
  try {
    const structured = observe('structured');
    const text = observe('text');
    const isPicture = typeof text === 'string' && text.startsWith(PICTURE);
    return {
      text: isPicture ? '' : cut(typeof text === 'string' ? text : JSON.stringify(text)),
      ...(sizeOf(structured, LARGEST_STATE + 1) <= LARGEST_STATE && { structured }),
    };
  } catch {
    return { text: 'The environment failed to show this state.' };
  }
}

const cut = (text: string): string => (text.length > LONGEST_TEXT ? `${text.slice(0, LONGEST_TEXT)}…` : text);

function shortAction(action: Json): Json {
  if (typeof action === 'string') return cut(action);
  return sizeOf(action, LONGEST_TEXT + 1) > LONGEST_TEXT ? cut(JSON.stringify(action)) : action;
}
