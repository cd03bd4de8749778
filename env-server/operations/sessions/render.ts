import { RecentMap } from '../../../shared/recent-map.ts';
import { Type } from '../../../shared/schema/type.ts';
import { encodePng } from '../../environments/core/drawing/png.ts';
import { scaled } from '../../environments/core/drawing/scale.ts';
import type { LiveEpisode } from '../../sessions/episodes/live-episode.ts';
import { pictureOf } from '../../sessions/episodes/state-queries.ts';
import type { Session } from '../../sessions/session.ts';
import { sessionOperation } from '../operation.ts';
import { PictureSize, Rendering, RenderMode } from '../schemas/session.ts';

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
class RecentPictures {
  readonly #painted = new RecentMap<LiveEpisode, RenderedPicture>(MAX_PICTURES);

  /** The current state of a session as the base64 of a PNG. */
  of({ variant, episode }: Session, size?: number): string {
    let painted = this.#painted.get(episode);
    if (painted?.step !== episode.stepCount || painted.size !== size) {
      const picture = pictureOf(variant, episode.state, episode.stepCount);
      const png = encodePng(size === undefined ? picture : scaled(picture, size)).toString('base64');
      painted = { step: episode.stepCount, size, png };
      this.#painted.set(episode, painted);
    }
    return painted.png;
  }
}

const pictures = new RecentPictures();

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
        return { mode, png: pictures.of(session, input.size) };
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
