import { Type } from 'typebox';

/** What a frame may be called. */
export const FrameIdSchema = Type.Union([Type.String(), Type.Integer()]);
