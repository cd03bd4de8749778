import type { Static } from 'typebox';
import { RecentMap } from '../../../shared/remembered.ts';
import { Type } from '../../../shared/schema/type.ts';
import type { Sliced } from '../../../shared/slices.ts';
import { encodePng, scaled } from '../../environments/core/drawing/png.ts';
import { isPainted } from '../../environments/core/environment.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { inScheduledSlices } from '../../environments/core/slices.ts';
import { type EpisodeState, replayFor, type TrajectoryRecord } from '../../sessions/episodes/episode.ts';
import type { LiveEpisode } from '../../sessions/episodes/live-episode.ts';
import { pictureOf } from '../../sessions/episodes/state-queries.ts';
import type { FinishedSession } from '../../sessions/finished-sessions.ts';
import { sizeOf } from '../../sessions/limits/budgets.ts';
import { Session } from '../../sessions/session.ts';
import { serverOperation, sessionOperation } from '../operation.ts';
import { SessionId } from '../schemas/fields.ts';
import {
  PictureSize,
  Rendering,
  RenderMode,
  Replay,
  type ReplayRecord,
  Trajectory,
} from '../schemas/session.ts';
import { reseedsView } from './views.ts';

export const trajectory = sessionOperation({
  name: 'trajectory',
  method: 'GET',
  path: '/v1/sessions/{session_id}/trajectory',
  summary: 'Get the episode so far',
  description:
    'Seed, options, every action and its result. Over REST as JSON Lines, a record a line; replaying the actions gives the same states.',
  plays: true,
  problems: ['unsupported'],
  result: Trajectory,
  mediaTypes: ['application/jsonl'],
  handle: session => chain(trajectoryOf(session), records => ({ records })),
  represent: ({ records }) =>
    chain(inScheduledSlices(linesOf(records)), body => ({
      contentType: 'application/jsonl; charset=utf-8',
      body,
    })),
});

/** The reset and every step of the current episode. */
function trajectoryOf(session: Session): MaybePromise<TrajectoryRecord[]> {
  const { episode, variant } = session;
  return chain(episode.records(), ([first, ...steps]) => [
    {
      type: 'reset',
      session_id: session.id,
      episode_id: episode.id,
      env_id: variant.environment.spec.id,
      config: variant.config,
      wrappers: [...variant.wrappers],
      seed: session.seed,
      ...(episode.dynamicsSeed !== undefined && { dynamics_seed: episode.dynamicsSeed }),
      ...reseedsView(episode),
      options: episode.options,
      step: first.step,
      observation: first.observation,
      info: first.info,
    },
    ...steps,
  ]);
}

/** Characters written before other work gets a turn. */
const SLICE_LENGTH = 64 * 1024;

function* linesOf(records: readonly object[]): Sliced<Buffer> {
  const written: Buffer[] = [];
  let text = '';
  for (const record of records) {
    text += `${JSON.stringify(record)}\n`;
    if (text.length < SLICE_LENGTH) continue;
    written.push(Buffer.from(text));
    text = '';
    yield;
  }
  written.push(Buffer.from(text));
  return Buffer.concat(written);
}

/** Estimated memory of the records in one reply, in bytes; at least one record is sent. */
const MAX_BYTES = 2 * 1024 * 1024;

export const replay = serverOperation({
  name: 'replay',
  method: 'GET',
  path: '/v1/sessions/{session_id}/replay',
  summary: 'Get an episode step by step',
  description:
    'Every step with the state as plain JSON, of a session that is open or ended within the last minute. The session is neither stepped nor kept from expiring.',
  plays: true,
  problems: ['unsupported', 'unknown_session', 'session_expired', 'session_closed', 'session_lost'],
  params: { session_id: SessionId },
  query: {
    from: Type.Optional(Type.Integer({ minimum: 0, description: 'The first step to send; 0 is the reset.' })),
  },
  result: Replay,
  handle({ services: { sessions }, request: { principal }, input: { session_id, from = 0 } }) {
    const seen = sessions.look(principal, session_id);
    const isOpen = seen instanceof Session;
    const episode = isOpen ? seen.episode.capture() : seen.episode;
    const known = isOpen ? seen.episode.ownRecords : seen.records;
    const format = isOpen && !isPainted(seen.format) ? seen.format : 'text';
    const { owner, variant } = seen;
    return chain(
      known ?? replayFor(owner, variant, episode, { format, structured: true }),
      (records): Static<typeof Replay> => ({
        session: headOf(seen, episode),
        ...pageOf(records.filter(record => record.step >= from)),
      }),
    );
  },
});

function headOf(seen: Session | FinishedSession, episode: EpisodeState): Static<typeof Replay>['session'] {
  const { id, variant, groupId, seed } = seen;
  const isOpen = seen instanceof Session;
  return {
    session_id: id,
    env_id: variant.environment.spec.id,
    group_id: groupId,
    episode_id: isOpen ? seen.episode.id : seen.episodeId,
    seed,
    ...(episode.dynamicsSeed !== undefined && { dynamics_seed: episode.dynamicsSeed }),
    ...reseedsView(episode),
    config: variant.config,
    wrappers: [...variant.wrappers],
    options: episode.options,
    max_episode_steps: variant.stepsOf(episode.state),
    step: episode.step,
    ended: isOpen ? null : seen.ending,
  };
}

/** A page of as many records as fit one reply. */
function pageOf(records: readonly TrajectoryRecord[]): Pick<Static<typeof Replay>, 'records' | 'next'> {
  const page: Static<typeof ReplayRecord>[] = [];
  let bytes = 0;
  for (const { type: _type, ...record } of records) {
    bytes += sizeOf(record, MAX_BYTES);
    if (bytes > MAX_BYTES && page.length > 0) return { records: page, next: record.step };
    page.push(record);
  }
  return { records: page, next: null };
}

/** Number of cached pictures. */
const MAX_PICTURES = 64;

interface RenderedPicture {
  /** Step of the episode in the picture. */
  readonly step: number;
  /** Pixels of its longer side; undefined for the painted size. */
  readonly size: number | undefined;
  /** Base64 of a PNG. */
  readonly png: string;
}

/** Pictures of the most recently viewed episodes: painting one costs as much as hundreds of steps. */
const pictures = new RecentMap<LiveEpisode, RenderedPicture>(MAX_PICTURES);

/** The current state of a session as the base64 of a PNG. */
function pngOf({ variant, episode }: Session, size: number | undefined): string {
  const known = pictures.get(episode);
  if (known?.step === episode.stepCount && known.size === size) return known.png;
  const picture = pictureOf(variant, episode.state, episode.stepCount);
  const png = encodePng(size === undefined ? picture : scaled(picture, size)).toString('base64');
  pictures.set(episode, { step: episode.stepCount, size, png });
  return png;
}

export const render = sessionOperation({
  name: 'render',
  method: 'GET',
  path: '/v1/sessions/{session_id}/render',
  summary: 'Render a session as text, picture or data',
  description:
    'Over REST the text, the PNG or the JSON itself; in frames and batches an object, PNG in base64.',
  plays: true,
  problems: ['unsupported'],
  query: { mode: Type.Optional(RenderMode), size: Type.Optional(PictureSize) },
  result: Rendering,
  mediaTypes: ['text/plain', 'image/png'],
  representedJson: Type.Unknown({ description: 'With `mode=structured`: the state as plain JSON.' }),
  handle(session, { input }): Rendering {
    const mode = input.mode ?? 'text';
    switch (mode) {
      case 'png':
        return { mode, png: pngOf(session, input.size) };
      case 'structured':
        return { mode, structured: session.episode.observe('structured') };
      case 'text':
        return { mode, text: String(session.episode.observe('text')) };
    }
  },
  represent(rendering) {
    switch (rendering.mode) {
      case 'png':
        return { contentType: 'image/png', body: Buffer.from(rendering.png!, 'base64') };
      case 'text':
        return { contentType: 'text/plain; charset=utf-8', body: rendering.text! };
      case 'structured':
        return {
          contentType: 'application/json; charset=utf-8',
          body: JSON.stringify(rendering.structured),
        };
    }
  },
});
