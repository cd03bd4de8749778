import { Type } from 'typebox';

/** Replies repeat it. */
const MAX_ID_LENGTH = 1024;

/** What a frame may be called. */
export const FrameIdSchema = Type.Union([Type.String({ maxLength: MAX_ID_LENGTH }), Type.Integer()]);
