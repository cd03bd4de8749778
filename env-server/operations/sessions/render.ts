import { Type } from 'typebox';
import { encodePng } from '../../environments/core/drawing/png.ts';
import { sessionOperation } from '../operation.ts';
import { Rendering, RenderMode } from '../schemas.ts';

export const render = sessionOperation({
  name: 'render',
  method: 'GET',
  path: '/v1/sessions/{session_id}/render',
  status: 200,
  summary: 'See a session as text, picture or data',
  description:
    'Over REST the text, the PNG or the JSON itself; in frames and batches an object, PNG in base64.',
  keyed: false,
  plays: true,
  problems: ['unsupported'],
  query: { mode: Type.Optional(RenderMode) },
  result: Rendering,
  mediaTypes: ['text/plain', 'image/png'],
  representedJson: Type.Unknown({ description: 'With `mode=structured`: the state as plain JSON.' }),
  handle(_services, session, input): Rendering {
    const mode = input.mode ?? 'text';
    switch (mode) {
      case 'png':
        return { mode, png: encodePng(session.episode.picture()).toString('base64') };
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
